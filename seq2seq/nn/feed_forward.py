"""The position-wise feed-forward network."""

from torch import nn

from seq2seq.nn.dropout import Dropout
from seq2seq.shapes import Float, Tensor


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2, each position on its own.

    Args:
        d_model: Width D.
        d_ff: Inner width F.
        dropout: After the ReLU; not in the paper.

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, equation 2.
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.output = nn.Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """[B, T, D] -> [B, T, F] -> [B, T, D]."""
        return self.output(self.dropout(self.inner(x).relu()))
