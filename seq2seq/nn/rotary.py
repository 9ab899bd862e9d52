"""Rotary positions: queries and keys are turned by angles that grow with their position."""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import embedding

from seq2seq.config import RopeConfig, RopeScaling
from seq2seq.nn.positions import GROWTH, Places
from seq2seq.shapes import Float, Int, Tensor


@dataclass(frozen=True)
class Rotation:
    """Cosines and sines of every position's angles, [B or 1, 1, T, K]; the same for all heads and layers."""

    cos: Tensor
    sin: Tensor

    def rows(self, rows: Int[Tensor, " R"]) -> "Rotation":
        """The rotation of the given rows; as it is where all rows are alike."""
        if len(self.cos) == 1:
            return self
        return Rotation(self.cos.index_select(0, rows), self.sin.index_select(0, rows))

    def turn(self, x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        """Each pair (x_i, x_{i + K/2}) turned by its angle."""
        left, right = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat([-right, left], dim=-1) * self.sin


class RotaryPositions(nn.Module):
    """The rotation of each position. No parameters, no longest length.

    Pair i turns by position * base^(-2i/K); entries i and i + K/2 are a pair, as in the weights that are published for
    LLaMA and Qwen in the Hugging Face layout (the paper pairs neighbours, which is the same up to the order of rows).

    Args:
        d_head: Width K of a head.
        config: Base and scaling.

    Source:
        Su et al. 2021, arXiv:2104.09864, equation 34.
    """

    def __init__(self, d_head: int, config: RopeConfig) -> None:
        super().__init__()
        self.d_head, self.config = d_head, config
        # Not a buffer, as `.to(dtype)` would cast it: angles are computed in float64 and rounded last.
        self.table = rotations(GROWTH, d_head, config).to(torch.get_default_dtype())

    def forward(self, places: Places, like: Tensor) -> Rotation:
        """The rotation of these positions, on the device and in the precision of `like`."""
        cos, sin = embedding(places.index, self.until(places.end, like)).chunk(2, dim=-1)
        return Rotation(cos[:, None], sin[:, None])

    def until(self, end: int, like: Tensor) -> Float[Tensor, "T KK"]:
        """Cosines, then sines, of at least so many positions, on the device and in the precision of `like`."""
        table = self.table
        if end > table.shape[0] or table.dtype != like.dtype or table.device != like.device:
            rows = max(table.shape[0], -(-end // GROWTH) * GROWTH)
            self.table = table = rotations(rows, self.d_head, self.config).to(like.dtype).to(like.device)
        return table


def rotations(num_positions: int, d_head: int, config: RopeConfig) -> Float[Tensor, "T KK"]:
    """Cosines, then sines, of each position from 0 on, computed in float64."""
    frequencies, factor = scaled_frequencies(d_head, config)
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None] * frequencies
    angles = torch.cat([angles, angles], dim=-1)
    return torch.cat([angles.cos(), angles.sin()], dim=-1) * factor


def scaled_frequencies(d_head: int, config: RopeConfig) -> tuple[Float[Tensor, " K2"], float]:
    """Radians a position of each of the K/2 pairs, in float64, and the factor on queries and keys.

    Source:
        linear: Chen et al. 2023, arXiv:2306.15595. yarn: Peng et al. 2023, arXiv:2309.00071, section 3, with the ramp
        of the code published with it: linear in the number of the pair, where the paper's is linear in its turns.
        llama3: Grattafiori et al. 2024, arXiv:2407.21783, with the code published with it.
    """
    plain = config.base ** (-torch.arange(0, d_head, 2, dtype=torch.float64) / d_head)
    if config.scaling is RopeScaling.linear:
        return plain / config.factor, 1.0
    if config.scaling is RopeScaling.llama3:
        return _llama3(plain, config), 1.0
    if config.scaling is RopeScaling.yarn:
        given = config.attention_factor
        factor = given if given is not None else (0.1 * math.log(config.factor) + 1.0 if config.factor > 1 else 1.0)
        return _yarn(plain, d_head, config), factor
    return plain, 1.0


def _llama3(plain: Float[Tensor, " K2"], config: RopeConfig) -> Float[Tensor, " K2"]:
    """Long wavelengths stretched by the factor, short ones left alone, a linear blend between."""
    assert config.original_positions is not None
    turns = config.original_positions * plain / (2 * math.pi)
    blend = ((turns - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor)).clamp(0, 1)
    return (1 - blend) * plain / config.factor + blend * plain


def _yarn(plain: Float[Tensor, " K2"], d_head: int, config: RopeConfig) -> Float[Tensor, " K2"]:
    """Pairs with few turns in the original length stretched, those with many left alone, a ramp between."""
    assert config.original_positions is not None

    def pair_with(turns: float) -> float:
        """Which pair makes so many turns in the original length; not a whole number."""
        assert config.original_positions is not None
        wavelength = config.original_positions / (turns * 2 * math.pi)
        return d_head * math.log(wavelength) / (2 * math.log(config.base))

    first, last = pair_with(config.beta_fast), pair_with(config.beta_slow)
    if config.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, d_head - 1)
    width = last - first if last != first else 0.001
    ramp = ((torch.arange(d_head // 2, dtype=torch.float64) - first) / width).clamp(0, 1)
    return plain * (1 - ramp) + plain / config.factor * ramp
