"""Products with a model's weights that are fast for few rows too, as a decode step has them, on a CPU.

A weight matrix [out, in] is multiplied fastest with many rows as it is, and with few when it is stored as [in, out]:
with 5 or 45 rows that takes two thirds to three quarters of the time. A model that decodes keeps both.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import linear

from seq2seq.models.encoder_decoder import EncoderDecoder
from seq2seq.models.estimated import EstimatedProjection, fast_bfloat16
from seq2seq.models.lean import LeanDecoder
from seq2seq.models.transformer import Transformer
from seq2seq.shapes import Float, Int, Tensor

FEW = 128
"""Rows up to which the turned matrix is faster."""

MOST_WEIGHTS = 100_000_000
"""Models with more weights do not keep them twice."""


def prepare_for_decoding(model: Transformer) -> None:
    """Let a model decode as fast as it can from now on. For decoding only, and for good."""
    _keep_turned(model)
    if isinstance(model, EncoderDecoder) and LeanDecoder.suits(model.decoder):
        model.lean = LeanDecoder(model.decoder)


def _keep_turned(model: Transformer) -> None:
    """Let a model in float32 on a CPU keep its matrices in both forms."""
    if model.output.device.type != "cpu" or model.output.dtype is not torch.float32 or model.projection is not None:
        return
    if model.num_parameters() > MOST_WEIGHTS:
        return
    model.requires_grad_(False)
    replace_linears(model, TurnedLinear)
    model.projection = TurnedProjection(model.output, model.output_bias)
    if fast_bfloat16():
        model.estimated = EstimatedProjection(model.output, without_zeros(model.output_bias))


def replace_linears(model: nn.Module, make: Callable[[nn.Linear], nn.Module]) -> None:
    """Put what `make` gives in the place of each `nn.Linear` inside."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, make(child))


class Turned:
    """A matrix in both forms.

    Args:
        weight: [out, in].
        bias: [out], or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias
        self._turned = weight.detach().t().contiguous()
        self._version = weight._version

    def product(self, x: Float[Tensor, "*rows in"]) -> Float[Tensor, "*rows out"]:
        """x W^T + b."""
        turned, weight = self._turned, self._weight
        num_rows = x.numel() // turned.shape[0]
        # the model may have been moved, or its weights changed, since
        same = x.dtype is turned.dtype and x.device == turned.device and weight._version == self._version
        if num_rows > FEW or not same:
            return linear(x, weight, self._bias)
        rows = x.reshape(num_rows, turned.shape[0])
        out = rows @ turned if self._bias is None else torch.addmm(self._bias, rows, turned)
        return out.view(*x.shape[:-1], turned.shape[1])


class TurnedLinear(nn.Module):
    """`nn.Linear`, its matrix in both forms.

    Args:
        layer: Whose weights it takes over.
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self._turned: Turned | None = None

    def forward(self, x: Float[Tensor, "*rows in"]) -> Float[Tensor, "*rows out"]:
        """x W^T + b."""
        turned = self._turned
        if turned is None or turned._weight is not self.weight:
            turned = self._turned = Turned(self.weight, self.bias)
        return turned.product(x)


def without_zeros(bias: Tensor | None) -> Tensor | None:
    """No bias if it is zero: models of other programs may have one, and to add it is a pass over all logits."""
    return None if bias is None or not bias.any() else bias


class TurnedProjection:
    """The projection onto the vocabulary, its matrix in both forms. Not a module: the model has the matrix already.

    Args:
        weight: [V, D].
        bias: [V], or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        bias = without_zeros(bias)
        self._weight, self._bias = weight, bias
        self._turned = Turned(weight, bias)

    def __call__(self, hidden: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """The logits."""
        return self._turned.product(hidden)

    def only(self, pieces: Int[Tensor, " n"]) -> "TurnedProjection":
        """The projection onto some pieces alone, in their order."""
        bias = None if self._bias is None else self._bias.detach().index_select(0, pieces)
        return TurnedProjection(self._weight.detach().index_select(0, pieces), bias)
