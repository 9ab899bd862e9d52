"""The continuations that a beam chooses from in one step, and what becomes of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seq2seq.search.step import picked
from seq2seq.shapes import Bool, Float, Int


@dataclass(frozen=True)
class Candidates:
    """Continuations of each sentence's live hypotheses, in the order in which they take the places of the beam."""

    log_probs: Float[np.ndarray, "B M"]
    """Of the hypothesis with the piece added, as the search goes by; -inf where it is forbidden."""
    rows: Int[np.ndarray, "B M"]
    """The row of the hypothesis that is continued."""
    pieces: Int[np.ndarray, "B M"]
    piece_log_probs: Float[np.ndarray, "B M"]
    """What the model gives to the piece."""

    @staticmethod
    def of(
        slots: Int[np.ndarray, "B W"],
        log_probs: Float[np.ndarray, " R"],
        pieces: Int[np.ndarray, "R n"],
        values: Float[np.ndarray, "R n"],
        own_values: Float[np.ndarray, "R n"],
        count: int | None,
    ) -> "Candidates":
        """The best `count` of all rows' best pieces (None: all of them), sentence by sentence, best first.

        Args:
            slots: Rows of each sentence's hypotheses, most probable first; -1 for none.
            log_probs: Of the hypotheses so far.
            pieces: The best pieces of each row, best first.
            values: What the search goes by.
            own_values: What the model gives to them.
            count: How many are wanted.
        """
        num_pieces = pieces.shape[1]
        totals = log_probs[slots][:, :, None] + values[slots]
        totals[slots < 0] = -np.inf
        totals = totals.reshape(len(slots), -1)
        # The stable sort puts the better hypothesis, then the better piece, first where totals are equal.
        order = np.argsort(-totals, axis=1, kind="stable")[:, :count]
        rows, at = picked(slots, order // num_pieces), order % num_pieces
        return Candidates(picked(totals, order), rows, pieces[rows, at], own_values[rows, at])

    def reordered(self, order: Int[np.ndarray, "B M"]) -> "Candidates":
        """The candidates of each sentence in another order."""
        parts = (self.log_probs, self.rows, self.pieces, self.piece_log_probs)
        return Candidates(*(picked(part, order) for part in parts))


def share_out(found: Candidates, met: Int[np.ndarray, "B M"]) -> Candidates:
    """The candidates in turn: of those that have met most the best one, of those that have met less, ..., then again.

    So the places of a beam are shared out equally among all that have met as much as each other, as far as there are
    candidates, and what some leave over goes to the rest.

    Source:
        Post and Vilar 2018, arXiv:1804.06609, section 3.2. Deviation: places that a bank cannot fill go to all others
        in turn, not to its neighbour.
    """
    if not met.any():
        return found
    # how many better ones have met as much
    before = np.zeros_like(met)
    for amount in np.unique(met):
        alike = (met == amount) & (found.log_probs > -np.inf)
        before = np.where(alike, alike.cumsum(axis=1) - 1, before)
    before[found.log_probs == -np.inf] = met.shape[1]
    return found.reordered(np.lexsort((-met, before), axis=1))


@dataclass(frozen=True)
class Fates:
    """What becomes of each candidate; of those that are neither, nothing."""

    finish: Bool[np.ndarray, "B M"]
    """At its end, and among the first W."""
    stays: Bool[np.ndarray, "B M"]
    """The first W that are not at their end."""

    @staticmethod
    def of(found: Candidates, ended: Bool[np.ndarray, "B M"], beam_size: int) -> "Fates":
        """Sort the candidates out."""
        possible = found.log_probs > -np.inf
        goes_on = possible & ~ended
        return Fates(
            finish=possible & ended & (np.arange(ended.shape[1]) < beam_size),
            stays=goes_on & (goes_on.cumsum(axis=1) <= beam_size),
        )


def with_wanted(pieces: Int[np.ndarray, "R n"], wanted: Sequence[Sequence[int]]) -> Int[np.ndarray, "R n2"]:
    """The pieces to be looked at, with those that are wanted besides; -1 where a row has fewer of them than others."""
    added = [
        [piece for piece in dict.fromkeys(more) if piece not in row]
        for row, more in zip(pieces.tolist(), wanted, strict=True)
    ]
    most = max(map(len, added), default=0)
    filled = np.array([[*more, *[-1] * (most - len(more))] for more in added], dtype=np.int64)
    return np.concatenate([pieces, filled.reshape(len(pieces), most)], axis=1)
