"""From piece ids to vectors."""

import math

from torch import nn

from seq2seq.nn.dropout import Dropout
from seq2seq.nn.positions import SinusoidalPositions
from seq2seq.shapes import Float, Int, Tensor


class Embedding(nn.Module):
    """Row look-up times sqrt(D), plus the sinusoid of the position, then dropout.

    The position is added here, once, and nowhere else in the network.

    Args:
        rows: The table [V, D]; may be shared with another embedding and the output projection.
        dropout: On the sum.

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, sections 3.4, 3.5 and 5.4.
    """

    def __init__(self, rows: nn.Embedding, dropout: float) -> None:
        super().__init__()
        self.rows = rows
        self.scale = math.sqrt(rows.embedding_dim)
        self.positions = SinusoidalPositions(rows.embedding_dim)
        self.dropout = Dropout(dropout)

    def forward(self, ids: Int[Tensor, "B T"], start: int = 0) -> Float[Tensor, "B T D"]:
        """Vectors of ids that stand at positions start, start + 1, ..."""
        return self.dropout(self.positions(self.rows(ids) * self.scale, start))
