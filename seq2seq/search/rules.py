"""Small objects that forbid pieces: each edits a step's log-probabilities in place.

A rule sees the hypotheses so far and the log-probabilities of their next pieces, and writes -inf where a piece must not
come next. What it leaves is not normalised again, so that a hypothesis keeps the log-probability that the model gives
it. Here are the rules that limits ask for; `warpers` has those that change how probable pieces are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from seq2seq.search.hypotheses import SearchLimits
from seq2seq.shapes import Float, Int, Tensor


@dataclass(frozen=True)
class Rows:
    """The hypotheses so far, one a row, on the CPU."""

    sentences: Int[Tensor, " R"]
    """Number of each row's sentence, as in the `SearchLimits`."""
    ids: Int[Tensor, "R t"]
    """The t pieces produced so far, BOS not counted."""

    @property
    def length(self) -> int:
        """Pieces produced so far, equal in all rows."""
        return self.ids.shape[1]


Rule = Callable[[Rows, Float[Tensor, "R V"]], None]
"""Edits in place what the pieces after each row are worth; -inf where a piece must not follow."""


class Suppressed:
    """Ids that are never produced."""

    def __init__(self, ids: Sequence[int], device: torch.device) -> None:
        self._ids = torch.tensor(ids, dtype=torch.long, device=device)

    def __call__(self, rows: Rows, log_probs: Float[Tensor, "R V"]) -> None:
        """Forbid the suppressed columns."""
        log_probs.index_fill_(1, self._ids, -torch.inf)


class MinLength:
    """No EOS before a sentence's minimum length."""

    def __init__(self, limits: SearchLimits) -> None:
        self._ends = limits.ends
        self._lengths = torch.tensor(limits.min_lengths)
        self._longest = max(limits.min_lengths, default=0)

    def __call__(self, rows: Rows, log_probs: Float[Tensor, "R V"]) -> None:
        """Forbid EOS where it would come too early."""
        length = rows.length + 1
        if length < self._longest:
            early = (self._lengths[rows.sentences] > length).nonzero()[:, 0]
            for end in self._ends:
                log_probs[early.to(log_probs.device), end] = -torch.inf


class ForcedPrefix:
    """Inside a sentence's prefix only its next piece."""

    def __init__(self, limits: SearchLimits) -> None:
        prefixes = [list(limits.prefix(sentence)) for sentence in range(len(limits))]
        self._longest = max(map(len, prefixes), default=0)
        self._pieces = torch.tensor([p + [-1] * (self._longest - len(p)) for p in prefixes], dtype=torch.long)

    def __call__(self, rows: Rows, log_probs: Float[Tensor, "R V"]) -> None:
        """Forbid all but the prefix's next piece where a prefix is not finished."""
        if rows.length < self._longest:
            pieces = self._pieces[rows.sentences, rows.length]
            inside = (pieces >= 0).nonzero()[:, 0]
            _allow_only(log_probs, inside, pieces[inside])


class MaxLength:
    """Only EOS for the last piece that a sentence's maximum length has room for."""

    def __init__(self, limits: SearchLimits) -> None:
        self._eos = limits.eos
        self._lengths = torch.tensor(limits.max_lengths)
        self._shortest = min(limits.max_lengths, default=0)

    def __call__(self, rows: Rows, log_probs: Float[Tensor, "R V"]) -> None:
        """Forbid all but EOS where a hypothesis has reached its limit."""
        length = rows.length + 1
        if length >= self._shortest:
            last = (self._lengths[rows.sentences] <= length).nonzero()[:, 0]
            _allow_only(log_probs, last, torch.full_like(last, self._eos))


class Behind:
    """A rule that leaves the first pieces of each sentence's hypotheses alone.

    What is forced on a sentence need not keep rules, and costs what the model says that it costs.

    Args:
        rule: The rule; it sees all pieces, those left alone too.
        lengths: For each sentence the number of pieces that are left alone.
    """

    def __init__(self, rule: Rule, lengths: Sequence[int]) -> None:
        self._rule = rule
        self._lengths = torch.tensor(lengths, dtype=torch.long)
        self._longest = max(lengths, default=0)

    def __call__(self, rows: Rows, log_probs: Float[Tensor, "R V"]) -> None:
        """Apply the rule to the rows that are long enough."""
        if rows.length >= self._longest:
            self._rule(rows, log_probs)
            return
        spared = (self._lengths[rows.sentences] > rows.length).nonzero()[:, 0].to(log_probs.device)
        kept = log_probs[spared]
        self._rule(rows, log_probs)
        log_probs[spared] = kept


def build_rules(limits: SearchLimits, device: torch.device) -> list[Rule]:
    """The rules that the limits ask for, in the order in which they are applied."""
    rules: list[Rule] = [Suppressed(limits.suppressed, device), MinLength(limits), ForcedPrefix(limits)]
    return rules if limits.open_end else [*rules, MaxLength(limits)]


def _allow_only(log_probs: Float[Tensor, "R V"], rows: Int[Tensor, " N"], pieces: Int[Tensor, " N"]) -> None:
    """Forbid every piece but one in each of `rows`; that one keeps its log-probability."""
    if len(rows) == 0:
        return
    rows, pieces = rows.to(log_probs.device), pieces.to(log_probs.device)
    kept = log_probs[rows, pieces]
    log_probs[rows] = -torch.inf
    log_probs[rows, pieces] = kept
