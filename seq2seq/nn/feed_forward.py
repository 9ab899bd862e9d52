"""The position-wise feed-forward network, plain or gated."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from seq2seq.config import Activation
from seq2seq.nn.cpu_linear import affine, by_hand, column_sums, linear, product
from seq2seq.nn.dropout import ByteChances, Dropout
from seq2seq.shapes import Float, Tensor

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.relu: functional.relu,
    Activation.gelu: functional.gelu,
    Activation.gelu_tanh: lambda x: functional.gelu(x, approximate="tanh"),
    Activation.gelu_sigmoid: lambda x: x * (1.702 * x).sigmoid(),
    Activation.silu: functional.silu,
}
"""GELU is x * Phi(x) (Hendrycks and Gimpel 2016, arXiv:1606.08415), with the paper's two approximations; SiLU is
x * sigmoid(x)."""


class FeedForward(nn.Module):
    """f(x W1 + b1) W2 + b2, or gated (f(x W1 + b1) * (x W3 + b3)) W2 + b2, each position on its own.

    Args:
        d_model: Width D.
        d_ff: Inner width F.
        activation: f; ReLU in the paper.
        gated: With the gate; W1 and W3 are stacked in one matrix `inner` [2F, D], W1 first.
        bias: Whether there are b1, b2, b3.
        dropout: After the non-linearity (after the gate, if there is one); not in the paper.

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, equation 2; gates: Shazeer 2020, arXiv:2002.05202, equation 5.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: Activation = Activation.relu,
        gated: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.gated = gated
        self.activation = ACTIVATIONS[activation]
        self.inner = nn.Linear(d_model, 2 * d_ff if gated else d_ff, bias=bias)
        self.output = nn.Linear(d_ff, d_model, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T D"], scale: float = 1.0) -> Float[Tensor, "B T D"]:
        """[B, T, D] -> [B, T, F] -> [B, T, D], times `scale`, which is as in `linear`."""
        if self.activation is functional.relu and not self.gated and by_hand(self.inner, x) and by_hand(self.output, x):
            return self._relu_forward(x, scale)
        inner = linear(x, self.inner)
        if self.gated:
            gate, value = inner.chunk(2, dim=-1)
            return linear(self.dropout(self.activation(gate) * value), self.output, scale)
        return linear(self.dropout(self.activation(inner)), self.output, scale)

    def _relu_forward(self, x: Float[Tensor, "B T D"], out_scale: float) -> Float[Tensor, "B T D"]:
        """The same in training on a CPU, where most time besides the products goes into passes over [B, T, F]."""
        rows = x.reshape(-1, x.shape[-1])
        kept, scale = None, 1.0
        if self.dropout.p > 0:
            chances = ByteChances(self.dropout.p)
            kept, scale = chances.draw(torch.Size((len(rows), self.inner.out_features))), chances.scale
        weights = (self.inner.weight, self.inner.bias, self.output.weight, self.output.bias)
        out: Tensor = _ReluFeedForward.apply(rows, *weights, kept, scale, out_scale)  # type: ignore[no-untyped-call]
        return out.view(x.shape)


class _ReluFeedForward(torch.autograd.Function):
    """(dropout(relu(x W1 + b1)) W2 + b2) * out_scale, of which one [n, F] tensor is kept.

    That is u = relu(x W1 + b1) * mask, not scaled: the scales of dropout go into products, where they cost nothing. An
    entry of u is 0 exactly where no gradient comes through, whether because of ReLU or of dropout.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        inner_weight: Tensor,
        inner_bias: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        kept: Tensor | None,
        scale: float,
        out_scale: float,
    ) -> Tensor:
        inner = functional.linear(x, inner_weight, inner_bias).relu_()
        if kept is not None:
            inner.mul_(kept)
        ctx.save_for_backward(x, inner, inner_weight, weight)
        ctx.scale, ctx.out_scale = scale * out_scale, out_scale
        return affine(inner, weight, bias, ctx.scale, out_scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, inner, inner_weight, weight = ctx.saved_tensors
        of_x, of_inner_weight, of_inner_bias, of_weight, of_bias = ctx.needs_input_grad[:5]
        of_inner = product(grad, weight, ctx.scale)
        # into its own place, which takes half as long
        torch.ops.aten.threshold_backward.grad_input(of_inner, inner, 0, grad_input=of_inner)
        return (
            of_inner @ inner_weight if of_x else None,
            of_inner.t() @ x if of_inner_weight else None,
            column_sums(of_inner) if of_inner_bias else None,
            product(grad.t(), inner, ctx.scale) if of_weight else None,
            column_sums(grad).mul_(ctx.out_scale) if of_bias else None,
            None,
            None,
            None,
        )
