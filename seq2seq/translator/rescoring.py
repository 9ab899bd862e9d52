"""What a beam finds under another length penalty, told from what it has found, where that can be proved.

The penalty does not decide which hypotheses a beam keeps: those are the most probable ones. It decides which of the
finished ones is the best, and when the search may stop. So a beam that has answered under a penalty p with its W best
hypotheses has left out only hypotheses that score at most as much as the worst of these, s, under p. Under q, one of l
pieces then scores at most s * lp_p(l) / lp_q(l). If the best of the W under q is above that for every l that is
possible, it is what a search under q would find. Otherwise nothing is known, and one has to search again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from seq2seq.search.length_penalty import LengthPenalty
from seq2seq.translator.results import Candidate


@dataclass(frozen=True)
class Pool:
    """The best hypotheses that a beam has found for a line."""

    candidates: Sequence[Candidate]
    """Best first; distinct pieces, not distinct texts, else those that read like a better one would be missing."""
    full: bool
    """Whether there are as many as were asked for; otherwise there are no others at all."""
    penalty: LengthPenalty
    """What they were ranked by."""
    lengths: tuple[int, int]
    """Fewest and most pieces of a hypothesis."""


def rescored(pool: Pool, penalty: LengthPenalty) -> Candidate | None:
    """The candidate that a search under another penalty would find; None where that is not certain.

    Args:
        pool: What was found under a penalty of the same form.
        penalty: The other penalty.
    """
    assert pool.penalty.form is penalty.form, "the quotient of two forms need not be monotone in the length"
    scores = [one.log_prob / penalty(len(one.ids)) for one in pool.candidates]
    best = max(range(len(scores)), key=scores.__getitem__)
    if scores.count(scores[best]) > 1:  # which of them was found first is not known
        return None
    if pool.full:
        worst = pool.candidates[-1].score
        # the quotient is a power of the length, so the bound is highest at one of the two ends
        bound = max(worst * pool.penalty(length) / penalty(length) for length in pool.lengths)
        if scores[best] <= bound:
            return None
    return pool.candidates[best]
