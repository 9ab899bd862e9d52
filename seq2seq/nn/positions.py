"""Position encodings."""

import torch
from torch import nn

from seq2seq.shapes import Float, Tensor

_BLOCK = 256
"""Positions that the table grows by."""


def sinusoids(num_positions: int, d_model: int) -> Float[Tensor, "T D"]:
    """Sinusoid of each position, sines in the even columns and cosines in the odd ones.

    PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)), computed in float64.

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.5.
    """
    position = torch.arange(num_positions, dtype=torch.float64)[:, None]
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = position * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


class SinusoidalPositions(nn.Module):
    """Adds the sinusoid of its position to every vector; has no parameters and no longest length."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        # Not a buffer: `.to(dtype)` would cast a buffer, and a float64 model would add sinusoids rounded to float32.
        self.table = sinusoids(_BLOCK, d_model).to(torch.get_default_dtype())

    def forward(self, x: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B T D"]:
        """The vectors with positions start, start + 1, ... added, in the precision of `x`."""
        end = start + x.shape[1]
        if end > self.table.shape[0] or self.table.dtype != x.dtype or self.table.device != x.device:
            rows = max(self.table.shape[0], -(-end // _BLOCK) * _BLOCK)
            self.table = sinusoids(rows, self.d_model).to(x.dtype).to(x.device)
        return x + self.table[start:end]
