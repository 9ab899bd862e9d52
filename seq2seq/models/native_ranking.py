"""What a beam search asks of rows of logits, by ranking.cpp: in a third of the time that torch and NumPy take."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np

from seq2seq.models.packed import check_native
from seq2seq.search.step import check_numbers
from seq2seq.shapes import Float, Int, Tensor


class NativeRanking:
    """The functions of ranking.cpp in a shared library. They compute on one thread.

    Args:
        path: The library. It runs with the rights of this process: load none that you do not trust.

    Raises:
        OSError: if it is no library.
        AttributeError: if it has other functions.
    """

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        number, pointer = ctypes.c_int64, ctypes.c_void_p
        norms, best = library.seq2seq_log_sum_exp, library.seq2seq_best_pieces
        norms.argtypes, norms.restype = [pointer, number, number, pointer], None
        best.argtypes, best.restype = [pointer, number, number, number, pointer, pointer], None
        self._norms: Callable[..., None] = norms
        self._best: Callable[..., None] = best

    def norm(self, logits: Float[Tensor, "R V"]) -> Float[np.ndarray, "R 1"]:
        """The logarithm of the sum of exponentials of each row.

        Args:
            logits: On the CPU, in float32.

        Raises:
            ValueError: if it is NaN, or logits are others.
        """
        check_native(logits)
        logits = logits.contiguous()
        norm = np.empty((len(logits), 1))
        self._norms(logits.data_ptr(), *logits.shape, norm.ctypes.data)
        check_numbers(norm)
        return norm

    def top(self, logits: Float[Tensor, "R V"], count: int) -> Int[np.ndarray, "R n"]:
        """The `count` best pieces of each row (all, if there are fewer), best first; of equally good ones the lower id.

        Args:
            logits: On the CPU, in float32, none of them NaN.
            count: Above 0.

        Raises:
            ValueError: if logits are others.
        """
        check_native(logits)
        logits = logits.contiguous()
        count = min(count, logits.shape[1])
        pieces, values = np.empty((len(logits), count), dtype=np.int64), np.empty(count, dtype=np.float32)
        self._best(logits.data_ptr(), *logits.shape, count, pieces.ctypes.data, values.ctypes.data)
        return pieces
