"""What a search is asked for (limits) and what it answers (hypotheses), and the pool that keeps the best ones."""

import bisect
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from seq2seq.search.length_penalty import LengthPenalty
from seq2seq.shapes import Int, Tensor

Identity = Callable[[tuple[int, ...]], Hashable]
"""Maps the ids of a hypothesis, EOS included, to what makes it a different answer, such as its decoded text."""

StopTest = Callable[[int, tuple[int, ...]], bool]
"""Whether a hypothesis of that sentence ends with these ids, although the last one is no end by itself."""


@dataclass(frozen=True)
class Hypothesis:
    """One complete answer of a search."""

    ids: tuple[int, ...]
    """Generated pieces, without what was fed first; a forced prefix and the closing EOS, if it has one, included."""
    log_prob: float
    """Sum of `token_log_probs`, in nats: what forced scoring of `ids` gives."""
    score: float
    """`log_prob` over the length penalty, plus a bonus if the search gives one. Where the search edits logits, of the
    edited ones in a beam."""
    token_log_probs: tuple[float, ...]
    """Log-probability that the model gives to each piece of `ids`, in nats."""
    hit_limit: bool
    """Whether the hypothesis ends because it had reached its maximum length (with a forced EOS, or without one)."""


@dataclass(frozen=True)
class SearchLimits:
    """What may be produced, sentence by sentence. Lengths are in pieces, EOS included.

    Raises:
        ValueError: if the lists differ in length, a length is out of range, or a prefix could never be produced.
    """

    bos: int
    """Fed first, unless `starts` says otherwise; never part of a hypothesis."""
    eos: int
    """Ends a hypothesis."""
    suppressed: tuple[int, ...]
    """Ids that are never produced: padding, BOS, rows of the output matrix that no piece has."""
    min_lengths: list[int]
    """A sentence's hypotheses have at least so many pieces."""
    max_lengths: list[int]
    """A hypothesis that has one piece less than this gets EOS next, whatever it costs; see `open_end`."""
    prefixes: list[list[int]] | None = None
    """Pieces that a sentence's hypotheses start with; an empty list for a free start."""
    starts: list[int] | None = None
    """What is fed first for each sentence, such as the last piece of its prompt; None feeds BOS."""
    other_ends: tuple[int, ...] = ()
    """Ids that end a hypothesis as EOS does, for a model that has several."""
    open_end: bool = False
    """A hypothesis of the maximum length just ends there, as a text that is cut off; no EOS is forced."""

    def __post_init__(self) -> None:
        count = len(self.max_lengths)
        for name in ("min_lengths", "prefixes", "starts"):
            values = getattr(self, name)
            if values is not None and len(values) != count:
                raise ValueError(f"{name} has {len(values)} entries for {count} sentences; give one for each sentence")
        for end in self.ends:
            if end in self.suppressed:
                raise ValueError(f"eos={end} is among the suppressed ids, so no hypothesis could end; leave it out")
        for sentence, (shortest, longest) in enumerate(zip(self.min_lengths, self.max_lengths, strict=True)):
            if longest < 1:
                raise ValueError(f"max_length={longest} of sentence {sentence} leaves no room for EOS; give at least 1")
            if not 0 <= shortest <= longest:
                raise ValueError(
                    f"min_length={shortest} of sentence {sentence} is not between 0 and its max_length={longest}"
                )
        for sentence in range(count):
            self._check_prefix(sentence)

    def _check_prefix(self, sentence: int) -> None:
        """Refuse a prefix that is too long, or has a piece that the search never produces inside a hypothesis."""
        prefix = self.prefix(sentence)
        if len(prefix) > self.max_lengths[sentence] - 1:
            raise ValueError(
                f"prefix of sentence {sentence} has {len(prefix)} pieces, expected at most "
                f"{self.max_lengths[sentence] - 1}: max_length={self.max_lengths[sentence]} counts EOS; raise it or "
                "shorten the prefix"
            )
        refused = sorted({piece for piece in prefix if piece < 0 or piece in self.ends or piece in self.suppressed})
        if refused:
            raise ValueError(
                f"prefix of sentence {sentence} has ids {refused} that are EOS, suppressed or negative; give ordinary "
                "pieces only"
            )

    def __len__(self) -> int:
        """Sentences."""
        return len(self.max_lengths)

    def prefix(self, sentence: int) -> Sequence[int]:
        """Pieces that hypotheses of `sentence` start with."""
        return self.prefixes[sentence] if self.prefixes is not None else ()

    @property
    def ends(self) -> tuple[int, ...]:
        """All ids that end a hypothesis, EOS first."""
        return (self.eos, *self.other_ends)

    def first_tokens(self, device: torch.device) -> Int[Tensor, "B 1"]:
        """What is fed first, one row a sentence."""
        if self.starts is None:
            return torch.full((len(self), 1), self.bos, device=device)
        return torch.tensor(self.starts, dtype=torch.long, device=device).view(-1, 1)

    @cached_property
    def shortest(self) -> list[int]:
        """Pieces of the shortest hypothesis that each sentence may have."""
        return [max(least, len(self.prefix(i)) + 1) for i, least in enumerate(self.min_lengths)]

    @cached_property
    def largest_id(self) -> int:
        """The largest id that these limits speak of."""
        ids = [self.bos, *self.ends, *self.suppressed, *(self.starts or [])]
        return max([*ids, *(piece for prefix in self.prefixes or () for piece in prefix)])

    def check_vocab_size(self, vocab_size: int) -> None:
        """Refuse ids that a model with `vocab_size` outputs does not have.

        Raises:
            ValueError: naming the largest id and the vocabulary size.
        """
        if self.largest_id >= vocab_size:
            raise ValueError(
                f"id {self.largest_id} in bos, eos, suppressed, prefixes or starts is beyond the model's {vocab_size} "
                "outputs; use the tokenizer that the model was trained with"
            )


def finished(
    limits: SearchLimits,
    sentence: int,
    ids: list[int],
    token_log_probs: list[float],
    penalty: LengthPenalty,
    *,
    total: float | None = None,
    bonus: float = 0.0,
    stopped: bool = False,
) -> Hypothesis:
    """The hypothesis of `sentence` that these pieces make.

    Args:
        limits: What the search was asked for.
        sentence: Number of the sentence.
        ids: All its pieces; the last one is an end, unless a stop test or an open limit ended it.
        token_log_probs: What the model gives to each.
        penalty: Divides the log-probability into the score.
        total: Log-probability that the search went by; None is the sum of `token_log_probs`.
        bonus: Added to the score.
        stopped: Whether a stop test ended it.
    """
    at_limit = len(ids) == limits.max_lengths[sentence]
    ended = ids[-1] in limits.ends
    assert ended or stopped or (limits.open_end and at_limit), f"a finished hypothesis ends in EOS, got {ids}"
    log_prob = 0.0
    for value in token_log_probs:  # in the order in which the search adds up, which sum() does not promise
        log_prob += value
    return Hypothesis(
        ids=tuple(ids),
        log_prob=log_prob,
        score=(log_prob if total is None else total) / penalty(len(ids)) + bonus,
        token_log_probs=tuple(token_log_probs),
        hit_limit=at_limit and not (limits.open_end and (ended or stopped)),
    )


class DeadEndError(ValueError):
    """A sentence has hypotheses that cannot be continued, and none that has ended.

    Args:
        sentence: Its number in the search.
    """

    def __init__(self, sentence: int) -> None:
        super().__init__(
            f"sentence {sentence} has no hypothesis: every piece that its limits allow has probability 0, expected at "
            "least one; look at the suppressed ids, the minimum length, the prefix, the phrases that it must contain, "
            "the rules that forbid pieces and the model's infinite logits"
        )
        self.sentence = sentence


class FinishedPool:
    """The best distinct finished hypotheses of one sentence, best first.

    Of two with equal `identity` the better one is kept; of two with equal score the one that was found first is the
    better. So the first entry does not depend on how many are asked for.
    """

    def __init__(self, n_best: int, identity: Identity | None = None) -> None:
        self._n_best = n_best
        self._identity = identity
        self._best: list[Hypothesis] = []
        self._identities: list[Hashable] = []

    def accepts(self, score: float) -> bool:
        """Whether a hypothesis found now with this score could still be one of the n best."""
        return len(self._best) < self._n_best or score > self.to_beat

    @property
    def to_beat(self) -> float:
        """What a score must be above so that the hypothesis could still be one of the n best."""
        return self._best[-1].score if len(self._best) == self._n_best else -math.inf

    def add(self, hypothesis: Hypothesis) -> None:
        """Put a hypothesis in its place, unless the pool holds its equal or has no room for it."""
        if not self.accepts(hypothesis.score):
            return
        identity = self._identity(hypothesis.ids) if self._identity is not None else hypothesis.ids
        if identity in self._identities:
            place = self._identities.index(identity)
            if self._best[place].score >= hypothesis.score:
                return
            del self._best[place], self._identities[place]
        place = bisect.bisect_right(self._best, -hypothesis.score, key=lambda held: -held.score)
        self._best.insert(place, hypothesis)
        self._identities.insert(place, identity)
        del self._best[self._n_best :], self._identities[self._n_best :]

    def best(self) -> list[Hypothesis]:
        """The hypotheses kept, best first."""
        return list(self._best)
