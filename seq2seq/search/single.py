"""One hypothesis a sentence, piece by piece: what greedy search and sampling have in common."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from seq2seq.search.hypotheses import Hypothesis, SearchLimits, StopTest, dead_end, finished
from seq2seq.search.length_penalty import LengthPenalty
from seq2seq.search.rules import Rows, Rule, build_rules
from seq2seq.search.step import State, StepFunction, next_log_probs, values_at
from seq2seq.shapes import Bool, Float, Int, Tensor

Choice = Callable[[Rows, Float[Tensor, "R V"]], Int[Tensor, "R 1"]]
"""Takes each row's next piece, given the log-probabilities of those that are allowed; the answer is on the CPU."""


@dataclass(frozen=True)
class Grown:
    """One sentence, a piece later."""

    sentence: int
    """Its number, as in the `SearchLimits`."""
    piece: int
    """The piece that was added."""
    hypothesis: Hypothesis | None
    """The whole, if it has come to its end."""


def grow(
    step: StepFunction[State],
    state: State,
    limits: SearchLimits,
    choose: Choice,
    *,
    penalty: LengthPenalty | None = None,
    edits: Sequence[Rule] = (),
    rules: Sequence[Rule] = (),
    stop: StopTest | None = None,
    device: torch.device | str,
) -> Iterator[list[Grown]]:
    """After each step the sentences that it has added a piece to; those that are done leave the batch.

    Args:
        step: Gives the logits of the next piece.
        state: Of the batch before the first piece, one row a sentence.
        limits: What may be produced.
        choose: Takes one piece for each row.
        penalty: Only for the score that is reported. None scores by log-probability.
        edits: Change the logits that the choice is made from; what is reported is the model's.
        rules: Forbid pieces, besides the limits.
        stop: Ends further hypotheses.
        device: Where `step` expects its tokens.

    Raises:
        ValueError: if an id lies outside the model's outputs, or no piece is possible.
    """
    device = torch.device(device)
    penalty = penalty or LengthPenalty()
    rules = [*build_rules(limits, device), *rules]
    rows = Rows(torch.arange(len(limits)), torch.empty(len(limits), 0, dtype=torch.long))
    token_log_probs = torch.empty(len(limits), 0, dtype=torch.float64)
    tokens = limits.first_tokens(device)
    while len(rows.sentences):
        log_probs, own, state = next_log_probs(step, tokens, state, rows=rows, rules=rules, edits=edits, limits=limits)
        pieces = choose(rows, log_probs)
        values = values_at(log_probs, pieces)
        for row in (values[:, 0] == -torch.inf).nonzero()[:, 0].tolist():
            raise dead_end(int(rows.sentences[row]))
        rows = Rows(rows.sentences, torch.cat([rows.ids, pieces], dim=1))
        token_log_probs = torch.cat([token_log_probs, values_at(own, pieces) if edits else values], dim=1)
        ended, stopped = _ends(rows, limits, stop)
        results: dict[int, Hypothesis] = {}
        for row in ended.nonzero()[:, 0].tolist():
            results[row] = finished(
                limits,
                int(rows.sentences[row]),
                rows.ids[row].tolist(),
                token_log_probs[row].tolist(),
                penalty,
                stopped=bool(stopped[row]),
            )
        yield [
            Grown(sentence, piece, results.get(row))
            for row, (sentence, piece) in enumerate(zip(rows.sentences.tolist(), pieces[:, 0].tolist(), strict=True))
        ]
        going = (~ended).nonzero()[:, 0]
        if 0 < len(going) < len(ended):
            kept = going.to(device)
            state = state.select(kept, kept)
        rows = Rows(rows.sentences[going], rows.ids[going])
        token_log_probs = token_log_probs[going]
        tokens = rows.ids[:, -1:].to(device)


def complete(steps: Iterable[list[Grown]]) -> list[Hypothesis]:
    """All hypotheses, by the number of their sentence."""
    done = {one.sentence: one.hypothesis for grown in steps for one in grown if one.hypothesis is not None}
    return [done[sentence] for sentence in sorted(done)]


def _ends(rows: Rows, limits: SearchLimits, stop: StopTest | None) -> tuple[Bool[Tensor, " R"], Bool[Tensor, " R"]]:
    """Which rows have come to their end, and which of them by the stop test."""
    ended = torch.isin(rows.ids[:, -1], torch.tensor(limits.ends))
    stopped = torch.zeros_like(ended)
    if stop is not None:
        for row in (~ended).nonzero()[:, 0].tolist():
            stopped[row] = stop(int(rows.sentences[row]), tuple(rows.ids[row].tolist()))
    if limits.open_end:
        ended = ended | (torch.tensor(limits.max_lengths)[rows.sentences] <= rows.length)
    return ended | stopped, stopped
