"""Position encodings: sinusoids and learned tables, added once to the embeddings.

Rotary positions, which turn queries and keys in every layer, are in `seq2seq.nn.rotary`.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import embedding

from seq2seq.shapes import Bool, Float, Tensor

GROWTH = 256
"""Positions that a table grows by."""


@dataclass(frozen=True)
class Places:
    """Where the pieces of a batch stand in their sequences, counted from 0.

    Attributes:
        index: Position of each piece, [1, T] where all rows are alike, else [B, T].
        end: No position is this large. Known without asking the device.
    """

    index: Tensor
    end: int

    @staticmethod
    def span(start: int, end: int, device: torch.device | None = None) -> "Places":
        """start, start + 1, ..., end - 1 in every row."""
        return Places(torch.arange(start, end, device=device)[None], end)

    @staticmethod
    def of_valid(valid: Bool[Tensor, "B T"]) -> "Places":
        """Counted from each row's first real piece, wherever its padding is; padded places count as the one before."""
        return Places((valid.cumsum(1) - 1).clamp(min=0), valid.shape[1])


def sinusoids(num_positions: int, d_model: int, halves: bool = False) -> Float[Tensor, "T D"]:
    """Sinusoid of each position, computed in float64.

    PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)).

    Args:
        num_positions: Positions from 0 on.
        d_model: Width D.
        halves: All sines in the first half of the columns and all cosines in the second, as Marian has it; otherwise
            sines in the even columns and cosines in the odd ones.

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.5; the halves are those of the authors' later code.
    """
    position = torch.arange(num_positions, dtype=torch.float64)[:, None]
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = position * frequency
    if halves:
        return torch.cat([angle.sin(), angle.cos()], dim=-1)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


class SinusoidalPositions(nn.Module):
    """Adds the sinusoid of its position to every vector; has no parameters and no longest length.

    Args:
        d_model: Width D.
        halves: Layout, as in `sinusoids`.
    """

    def __init__(self, d_model: int, halves: bool = False) -> None:
        super().__init__()
        self.d_model, self.halves = d_model, halves
        # Not a buffer: `.to(dtype)` would cast a buffer, and a float64 model would add sinusoids rounded to float32.
        self.table = sinusoids(GROWTH, d_model, halves).to(torch.get_default_dtype())

    def forward(self, x: Float[Tensor, "B T D"], places: Places) -> Float[Tensor, "B T D"]:
        """The vectors with their positions added, in the precision of `x`."""
        return x + embedding(places.index, self.until(places.end, x))  # many times faster than indexing

    def until(self, end: int, like: Tensor) -> Float[Tensor, "T D"]:
        """The sinusoids of at least so many positions, on the device and in the precision of `like`."""
        table = self.table
        if end > table.shape[0] or table.dtype != like.dtype or table.device != like.device:
            rows = max(table.shape[0], -(-end // GROWTH) * GROWTH)
            self.table = table = sinusoids(rows, self.d_model, self.halves).to(like.dtype).to(like.device)
        return table


class LearnedPositions(nn.Module):
    """Adds a learned vector for its position to every vector.

    Args:
        max_positions: Rows of the table.
        d_model: Width D.

    Source:
        Gehring et al. 2017, arXiv:1705.03122, section 3.1; Radford et al. 2018 (GPT).
    """

    def __init__(self, max_positions: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_positions, d_model)

    def forward(self, x: Float[Tensor, "B T D"], places: Places) -> Float[Tensor, "B T D"]:
        """The vectors with their positions added.

        Raises:
            ValueError: if a position is beyond the table.
        """
        if places.end > self.table.num_embeddings:
            self.check(int(places.index.max()) + 1 if places.index.numel() else 0)
        return x + self.table(places.index)

    def until(self, end: int, like: Tensor) -> Float[Tensor, "T D"]:
        """The table, in the precision of `like`, if it has so many positions.

        Raises:
            ValueError: if it has not.
        """
        self.check(end)
        return self.table.weight.to(like.dtype)

    def check(self, length: int) -> None:
        """Refuse a sequence that is longer than the table.

        Raises:
            ValueError: with both lengths.
        """
        check_positions(length, self.table.num_embeddings)


def check_positions(length: int, max_positions: int) -> None:
    """Refuse a sequence that is longer than the table of learned positions.

    Raises:
        ValueError: with both lengths.
    """
    if length > max_positions:
        raise ValueError(
            f"a sequence of {length} pieces was asked for, but this model has learned positions for {max_positions}; "
            "give it shorter text, or train with a larger model.max_positions or with positions that have no limit "
            "(sinusoidal, rope)"
        )
