"""Each row's best next piece without all logits in float32: estimates in bfloat16, a bound of their error, and exact
logits of the few pieces that the bound leaves in question.

A CPU with matrix units for bfloat16 (AMX) makes estimates of all logits in a fifth of the time that the logits take.
What is found is what the logits themselves say, but for the rounding of float32, which settles pieces that are equally
good to seven digits one way or the other. The slow twin is `argmax` of `Transformer.logits`.
"""

import copy
from collections.abc import Callable
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch.nn.functional import linear

from seq2seq.shapes import Float, Int, Tensor

ROUNDED = 2.0**-8
"""Rounding to bfloat16, which keeps 8 binary digits, changes a number by at most this part of it."""

ROUNDED_AND_MORE = ROUNDED / (1 - ROUNDED)
"""A little more than that, for what is worked out from rounded numbers in float32."""

FEWEST = 5
"""With fewer rows logits take no longer."""

MOST_IN_QUESTION = 16
"""If more pieces a row would have to be looked at again, logits are the shorter way."""


class EstimatedProjection:
    """A projection onto the vocabulary, h W^T + b, from which only the best pieces are wanted.

    Args:
        weight: W [V, D], float32, on a CPU.
        bias: b [V]; None without.
    """

    def __init__(self, weight: Float[Tensor, "V D"], bias: Float[Tensor, " V"] | None) -> None:
        self._weight, self._bias = weight, bias
        self._versions = self._now()
        self._lock = Lock()  # batches side by side may be the first ones together

    def suits(self, hidden: Float[Tensor, "R D"]) -> bool:
        """Whether estimates of these are worth while, and right: the model may have been moved or changed since."""
        unchanged = hidden.dtype is torch.float32 and hidden.device.type == "cpu" and self._versions == self._now()
        return unchanged and len(hidden) >= FEWEST

    def __call__(self, hidden: Float[Tensor, "R D"], logits: Callable[[], Float[Tensor, "R V"]]) -> "RoughLogits":
        """Estimates of all logits.

        Args:
            hidden: The output of the last layer.
            logits: Gives the logits themselves, should they be asked for.
        """
        with self._lock:
            matrix = self._matrix
        return RoughLogits(matrix, hidden, logits)

    def __deepcopy__(self, memo: dict[Any, Any]) -> "EstimatedProjection":
        # a matrix laid out for oneDNN has no storage that could be copied
        return EstimatedProjection(copy.deepcopy(self._weight, memo), copy.deepcopy(self._bias, memo))

    @cached_property
    def _matrix(self) -> "_RoundedMatrix":
        return _RoundedMatrix(self._weight.detach(), None if self._bias is None else self._bias.detach())

    def _now(self) -> list[tuple[int, int]]:
        """Where the weights are, and how often they have been written to."""
        return [(tensor.data_ptr(), tensor._version) for tensor in (self._weight, self._bias) if tensor is not None]


def fast_bfloat16() -> bool:
    """Whether torch and the CPU have matrix units for bfloat16."""
    backend: Any = torch.backends.mkldnn
    capabilities: Any = getattr(torch.cpu, "get_capabilities", dict)()  # of torch 2.11 and later
    return bool(backend.is_available() and capabilities.get("amx_bf16", False))


class _RoundedMatrix:
    """W and b, and both in bfloat16, with what was lost."""

    def __init__(self, weight: Float[Tensor, "V D"], bias: Float[Tensor, " V"] | None) -> None:
        self.weight, self.bias = weight.numpy(), None if bias is None else bias.numpy()
        rounded = weight.bfloat16()
        self._rounded_bias = None if bias is None else bias.bfloat16()
        longest, lost = _longest(weight), _longest(rounded.float().sub_(weight))
        # a sum of D products in float32 is wrong by at most D 2^-24 of what their sizes add up to; taken twice
        summing = weight.shape[1] * 2.0**-23
        self._slack_per_length = ROUNDED * longest + (1 + ROUNDED) * (lost + summing * (longest + lost))
        self._slack_of_bias = 0.0
        if bias is not None and self._rounded_bias is not None:
            bias_lost = float((bias - self._rounded_bias.float()).abs().max())
            self._slack_of_bias = bias_lost + summing * float(bias.abs().max())
        self._is_packed = _packs()
        # oneDNN lays a matrix out anew for each product, unless that has been done before
        self._rounded = torch.ops.mkldnn._reorder_linear_weight(rounded, _TYPICAL_ROWS) if self._is_packed else rounded

    def product(self, hidden: Tensor) -> Tensor:
        """[R, V] of [R, D], all in bfloat16; sums are kept in float32."""
        if not self._is_packed:
            return linear(hidden, self._rounded, self._rounded_bias)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(hidden, self._rounded, self._rounded_bias, "none", [], "")
        return out

    def slack(self, hidden: Float[np.ndarray, "R D"]) -> Float[np.ndarray, " R"]:
        """By how much an estimate may be wrong before it is rounded to bfloat16 itself.

        By Cauchy and Schwarz |hw - h'w'| <= |h - h'| |w| + |h'| |w - w'|, where |h - h'| <= u |h|, and |h'| is at most
        (1 + u) |h|. What is lost in sums is added, and a thousandth for the rounding of the bound.
        """
        lengths = np.sqrt(np.einsum("rd,rd->r", hidden, hidden)) + np.float32(_SMALL)
        slack: np.ndarray = lengths * np.float32(1.001 * self._slack_per_length)
        return slack if self.bias is None else slack + np.float32(1.001 * self._slack_of_bias)

    def exact(self, hidden: Float[np.ndarray, "n D"], pieces: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """The logit of one piece for each vector, in float64."""
        logits: np.ndarray = np.einsum("nd,nd->n", hidden, self.weight[pieces], dtype=np.float64)
        return logits if self.bias is None else logits + self.bias[pieces]


_TYPICAL_ROWS = 64

_SMALL = 1e-17
"""Added to lengths: more than all numbers together make whose squares float32 does not hold, up to 8,192 of them."""


def _longest(rows: Float[Tensor, "V D"]) -> float:
    """The length of the longest row, or rather more."""
    return float(torch.linalg.vector_norm(rows, dim=1).max()) + _SMALL


def _packs() -> bool:
    """Whether torch has the operators, which its compiler uses, that multiply by a matrix laid out before."""
    return fast_bfloat16() and all(
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )


class RoughLogits:
    """Logits, each within a bound of the true one.

    Attributes:
        values: [R, V] in bfloat16. Rules may write -inf.
        logits: Gives the logits themselves.
    """

    def __init__(
        self, matrix: _RoundedMatrix, hidden: Float[Tensor, "R D"], logits: Callable[[], Float[Tensor, "R V"]]
    ) -> None:
        self.logits = logits
        self._matrix, self._hidden = matrix, hidden.numpy()
        self.values = matrix.product(hidden.bfloat16())

    def best(self) -> Int[np.ndarray, "R 1"] | None:
        """The best piece of each row, of equally good ones the lowest; None where the estimates are of no use.

        In question is each piece whose logit may be as high as that of the one with the highest estimate. The values
        are used up.
        """
        with np.errstate(invalid="ignore", over="ignore"):  # numbers that are none are found below
            return self._best()

    def _best(self) -> Int[np.ndarray, "R 1"] | None:
        rows, slack = np.arange(len(self._hidden)), self._matrix.slack(self._hidden)
        # positive numbers are in the order of their bits, and above negative ones; NumPy compares 16 bits the fastest
        keys: np.ndarray = self.values.view(torch.int16).numpy()
        best = keys.argmax(axis=1)
        least = _least_in_question(_of_bits(keys[rows, best]), slack)
        if least.min() > 0 and least.max() < np.inf:
            least, lowest = _bits(least), float(np.iinfo(np.int16).min)
        else:
            keys, lowest = self.values.float().numpy(), -np.inf
            best = keys.argmax(axis=1)
            least = _least_in_question(keys[rows, best], slack)
            if not np.isfinite(least).all():
                return None
        keys[rows, best] = lowest
        unsettled = np.flatnonzero(keys.max(axis=1) >= least)
        if len(unsettled):
            in_question = np.flatnonzero(keys[unsettled] >= least[unsettled, None])
            if len(in_question) > MOST_IN_QUESTION * len(keys):
                return None
            row, piece = np.divmod(in_question, keys.shape[1])
            row = np.concatenate([row, np.arange(len(unsettled))])
            piece = np.concatenate([piece, best[unsettled]])
            logits = self._matrix.exact(self._hidden[unsettled[row]], piece)
            order = np.lexsort((piece, -logits, row))
            best[unsettled] = piece[order[np.searchsorted(row[order], np.arange(len(unsettled)))]]
        return best[:, None]


def _least_in_question(highest: Float[np.ndarray, " R"], slack: Float[np.ndarray, " R"]) -> Float[np.ndarray, " R"]:
    """The lowest estimate z that may stand for a logit as high as that of the highest estimate of its row.

    A logit lies within slack + u |z| of its estimate z, so z + u |z| must reach highest - u |highest| - 2 slack.
    """
    reached = highest - ROUNDED_AND_MORE * np.abs(highest) - 2 * slack
    least: np.ndarray = reached - ROUNDED_AND_MORE * np.abs(reached)  # at most reached / (1 + u), below 0 / (1 - u)
    return least


def _of_bits(bits: Int[np.ndarray, " R"]) -> Float[np.ndarray, " R"]:
    """bfloat16 numbers of their bits."""
    numbers: np.ndarray = (bits.astype(np.int32) << 16).view(np.float32)
    return numbers


def _bits(numbers: Float[np.ndarray, " R"]) -> Int[np.ndarray, " R"]:
    """The bits of numbers above zero in bfloat16, rounded down."""
    bits: np.ndarray = (numbers.view(np.int32) >> 16).astype(np.int16)
    return bits
