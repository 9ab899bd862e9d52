"""The position-wise feed-forward network, plain or gated."""

from collections.abc import Callable

from torch import nn
from torch.nn import functional

from seq2seq.config import Activation
from seq2seq.nn.dropout import Dropout
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
        inner = self.inner(x)
        if self.gated:
            gate, value = inner.chunk(2, dim=-1)
            return self.output(self.dropout(self.activation(gate) * value))
        return self.output(self.dropout(self.activation(inner)))
