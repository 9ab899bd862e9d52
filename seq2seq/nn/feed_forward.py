"""The position-wise feed-forward network, plain or gated."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from seq2seq.config import Activation
from seq2seq.nn.dropout import ByteChances, Dropout, draws_bytes
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

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """[B, T, D] -> [B, T, F] -> [B, T, D]."""
        if self.training and self.activation is functional.relu and not self.gated and _writes_gradients(x):
            return self._relu_forward(x)
        inner = self.inner(x)
        if self.gated:
            gate, value = inner.chunk(2, dim=-1)
            return self.output(self.dropout(self.activation(gate) * value))
        return self.output(self.dropout(self.activation(inner)))

    def _relu_forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """The same in training on a CPU, where most time besides the products goes into passes over [B, T, F]."""
        rows = x.reshape(-1, x.shape[-1])
        kept, scale = None, 1.0
        if self.dropout.p > 0:
            chances = ByteChances(self.dropout.p)
            kept, scale = chances.draw(torch.Size((len(rows), self.inner.out_features))), chances.scale
        weights = (self.inner.weight, self.inner.bias, self.output.weight, self.output.bias)
        out: Tensor = _ReluFeedForward.apply(rows, *weights, kept, scale)  # type: ignore[no-untyped-call]
        return out.view(x.shape)


def _writes_gradients(x: Tensor) -> bool:
    """Whether this is plain training on a CPU."""
    return draws_bytes(x) and not torch.is_autocast_enabled("cpu")


class _ReluFeedForward(torch.autograd.Function):
    """dropout(relu(x W1 + b1)) W2 + b2, of which one [n, F] tensor is kept.

    That is u = relu(x W1 + b1) * mask, not scaled: the scale of dropout goes into products, where it costs nothing. An
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
    ) -> Tensor:
        inner = functional.linear(x, inner_weight, inner_bias).relu_()
        if kept is not None:
            inner.mul_(kept.to(inner.dtype))
        ctx.save_for_backward(x, inner, inner_weight, weight)
        ctx.scale = scale
        if bias is None:
            return (inner @ weight.t()).mul_(scale)
        return torch.addmm(bias, inner, weight.t(), alpha=scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, inner, inner_weight, weight = ctx.saved_tensors
        of_x, of_inner_weight, of_inner_bias, of_weight, of_bias = ctx.needs_input_grad[:5]
        of_inner = torch.ops.aten.threshold_backward(grad @ (weight * ctx.scale), inner, 0)
        ones = grad.new_ones(len(grad))  # with which a product sums up columns faster than torch's sum does
        return (
            of_inner @ inner_weight if of_x else None,
            of_inner.t() @ x if of_inner_weight else None,
            torch.mv(of_inner.t(), ones) if of_inner_bias else None,
            (grad.t() @ inner).mul_(ctx.scale) if of_weight else None,
            torch.mv(grad.t(), ones) if of_bias else None,
            None,
            None,
        )
