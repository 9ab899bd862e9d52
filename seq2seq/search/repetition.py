"""Rules against saying things twice. `warpers.RepetitionPenalty` makes repetition dear; here it is forbidden."""

import numpy as np
import torch

from seq2seq.search.rules import Rows
from seq2seq.shapes import Float, Tensor


class NoRepeatNgram:
    """No sequence of n pieces comes twice in a hypothesis.

    All pieces that a hypothesis has count, those of a forced prefix too: what the prefix says is not said again. An
    n-gram may overlap the one that it would repeat: with n = 2 there is no third "ha" in a row.

    Source:
        Paulus et al. 2017, arXiv:1705.04304, section 2.5, for n = 3.

    Args:
        n: Pieces of a sequence, at least 1; with 1 no piece comes twice.
    """

    def __init__(self, n: int) -> None:
        assert n >= 1, f"n={n}"
        self._n = n

    def __call__(self, rows: Rows, log_probs: Float[Tensor, "R V"]) -> None:
        """Forbid the pieces that have followed the last n - 1 pieces of their row before."""
        context = self._n - 1
        if rows.length <= context:
            return
        ids = rows.ids.numpy()
        # of every place that a piece has, whether the pieces before it are those that are before the next piece
        before = np.lib.stride_tricks.sliding_window_view(ids[:, :-1], context, axis=1) if context else None
        if before is None:
            row, piece = np.arange(len(ids)).repeat(ids.shape[1]), ids.ravel()
        else:
            row, place = (before == ids[:, None, ids.shape[1] - context :]).all(axis=2).nonzero()
            piece = ids[row, place + context]
        if len(row):
            device = log_probs.device
            log_probs[torch.from_numpy(row).to(device), torch.from_numpy(piece).to(device)] = -torch.inf
