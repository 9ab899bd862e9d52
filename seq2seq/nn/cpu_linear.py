"""Linear layers as training on a CPU wants them: their gradients take products alone, and a factor costs nothing.

The slow twin is `torch.nn.functional.linear`.
"""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from seq2seq.nn.dropout import writes_gradients
from seq2seq.shapes import Float, Tensor


def linear(x: Float[Tensor, "*rows D"], layer: nn.Module, scale: float = 1.0) -> Float[Tensor, "*rows E"]:
    """scale * (x W^T + b).

    Args:
        x: Vectors, in the precision of the layer unless there is autocast.
        layer: Has W [E, D] and perhaps b [E], or is anything that stands in the place of such a layer.
        scale: The factor; that of `Dropout.ahead` where the layer's output is dropped out.
    """
    if by_hand(layer, x):
        out: Tensor = _Linear.apply(x, layer.weight, layer.bias, scale)  # type: ignore[no-untyped-call]
        return out
    plain: Tensor = layer(x)
    return plain if scale == 1.0 else plain * scale


def by_hand(layer: nn.Module, x: Float[Tensor, "*rows D"]) -> bool:
    """Whether gradients are taken here: in plain training, of a plain layer that nobody has hooked into."""
    return (
        type(layer) is nn.Linear
        and layer.training
        and writes_gradients(x)
        and not (layer._forward_hooks or layer._forward_pre_hooks)
    )


def product(left: Float[Tensor, "n m"], right: Float[Tensor, "m k"], scale: float = 1.0) -> Float[Tensor, "n k"]:
    """scale * (left @ right); the factor is taken into the product."""
    return torch.addmm(left.new_empty(()), left, right, beta=0, alpha=scale)


def affine(
    rows: Float[Tensor, "n D"],
    weight: Float[Tensor, "E D"],
    bias: Float[Tensor, " E"] | None,
    scale: float,
    bias_scale: float,
) -> Float[Tensor, "n E"]:
    """scale * rows W^T + bias_scale * b."""
    if bias is None:
        return product(rows, weight.t(), scale)
    return torch.addmm(bias, rows, weight.t(), alpha=scale, beta=bias_scale)


def column_sums(rows: Float[Tensor, "n D"]) -> Float[Tensor, " D"]:
    """The sum of the rows, which a product takes faster than torch's sum does."""
    return torch.mv(rows.t(), rows.new_ones(len(rows)))


class _Linear(torch.autograd.Function):
    """Forward and backward each one product for each of the tensors, and nothing else that is large."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, scale: float) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        needs_x, needs_weight = ctx.needs_input_grad[:2]
        ctx.save_for_backward(rows if needs_weight else None, weight if needs_x else None)
        ctx.scale, ctx.shape = scale, x.shape
        return affine(rows, weight, bias, scale, scale).view(*x.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        grad = grad.reshape(-1, grad.shape[-1])
        of_x, of_weight, of_bias = ctx.needs_input_grad[:3]
        return (
            product(grad, weight, ctx.scale).view(ctx.shape) if of_x else None,
            product(grad.t(), rows, ctx.scale) if of_weight else None,
            column_sums(grad).mul_(ctx.scale) if of_bias else None,
            None,
        )
