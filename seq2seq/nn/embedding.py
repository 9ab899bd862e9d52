"""From piece ids to vectors."""

import math
from dataclasses import dataclass

from torch import nn

from seq2seq.nn.dropout import Dropout
from seq2seq.nn.positions import LearnedPositions, Places, SinusoidalPositions
from seq2seq.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True)
class Mixture:
    """Vectors that stand in the place of rows of the table, for example means of several rows.

    Attributes:
        where: The places whose ids are passed over.
        vectors: One for each of them, in the order of `where` read row by row; not scaled, as rows of the table are.
    """

    where: Bool[Tensor, "B T"]
    vectors: Float[Tensor, "places D"]


class Embedding(nn.Module):
    """Row look-up, times sqrt(D) in the original, plus the vector of the position, then dropout.

    The position is added here, once, and nowhere else in the network; with rotary positions nothing is added.

    Args:
        rows: The table [V, D]; may be shared with another embedding and the output projection.
        positions: What adds the positions; None adds nothing.
        scaled: Whether rows are multiplied by sqrt(D).
        dropout: On the sum.

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, sections 3.4, 3.5 and 5.4.
    """

    def __init__(
        self,
        rows: nn.Embedding,
        positions: SinusoidalPositions | LearnedPositions | None,
        scaled: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.rows = rows
        self.scale = math.sqrt(rows.embedding_dim) if scaled else 1.0
        self.positions = positions
        self.dropout = Dropout(dropout)

    def forward(
        self, ids: Int[Tensor, "B T"], places: Places, mixture: Mixture | None = None
    ) -> Float[Tensor, "B T D"]:
        """Vectors of ids that stand at the given places, or of what stands in their place; both are treated alike."""
        vectors = self.rows(ids)
        if mixture is not None:
            vectors = vectors.masked_scatter(mixture.where[..., None], mixture.vectors.to(vectors.dtype))
        if self.scale != 1.0:
            vectors = vectors * self.scale
        if self.positions is not None:
            vectors = self.positions(vectors, places)
        return self.dropout(vectors)
