"""Lines on their way to the model: prepared, sorted by length, filled into batches."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from seq2seq.config import DecodeConfig
from seq2seq.corpus import batching
from seq2seq.shapes import Bool, Int, Tensor

READ_AHEAD = 16
"""Batches' worth of pieces that are read before they are sorted by length and translated."""

FEW = 8
"""Shorter sources count as so many pieces: what takes the memory is the outputs of a row, however short it is."""


@dataclass(frozen=True)
class Part:
    """A sentence of the search: a line, or a part of one that was split."""

    number: int
    """Of the line, counted from 1."""
    source: tuple[int, ...]
    """Ids with EOS."""
    prefix: tuple[int, ...] = ()
    """Target pieces that the translation starts with."""
    phrases: tuple[str, ...] = ()
    """What the translation must contain."""
    forced: bool = False
    """Whether the prefix is the whole translation, but for EOS."""
    text: str = ""
    """The line, all of it."""
    first: int = 0
    """Number of the line's pieces before this part."""
    repeated: int = 0
    """Pieces in front that are repeated from the front of the line, which the part itself comes after."""
    positions: int | None = None
    """Target pieces, EOS included, that the model has positions for; None without a limit."""
    room: int = 0
    """Pieces that the phrases may still need behind the prefix."""


@dataclass(frozen=True)
class SourceLine:
    """A line of the input as the model is given it."""

    number: int
    """Counted from 1."""
    text: str
    """As read."""
    parts: tuple[Part, ...]
    """One, several if the line was split, none if there is nothing to translate."""
    notice: str | None
    """What has been done about a line that was too long."""


def token_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Places of all sequences, in batches of similar length.

    Each batch has at most `budget` pieces, unless it is a single sequence. A batch with an early sequence comes early,
    so that answers in input order do not wait for long.
    """
    batches: list[list[int]] = []
    room = 0
    for place in sorted(range(len(lengths)), key=lambda place: (lengths[place], place)):
        if not batches or lengths[place] > room:
            batches.append([])
            room = budget
        batches[-1].append(place)
        room -= lengths[place]
    return sorted(batches, key=min)


def part_batches(parts: Sequence[Part], budget: int) -> list[list[int]]:
    """Places of all parts, in the batches that they are translated in."""
    return token_batches([max(len(part.source), FEW) for part in parts], budget)


def take(sources: Iterator[SourceLine], budget: int) -> tuple[list[SourceLine], Exception | None]:
    """The next lines, up to `budget` pieces, and the error that ended them early, if one did.

    The error is handed over rather than raised, so that the lines before it can still be translated.
    """
    taken = []
    try:
        for source in sources:
            taken.append(source)
            budget -= 1 + sum(len(part.source) for part in source.parts)
            if budget <= 0:
                break
    except Exception as error:  # noqa: BLE001, RUF100  raised again by the caller, after these lines
        return taken, error
    return taken, None


def pad(
    sequences: Sequence[Sequence[int]], filler: int, device: torch.device
) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
    """The sequences as one tensor on the device, filled up on the right, and where it is real."""
    return batching.pad(sequences, filler).to(device), batching.lengths_mask([*map(len, sequences)]).to(device)


def length_limits(
    decode: DecodeConfig, source_length: int, prefix_length: int, positions: int | None = None
) -> tuple[int, int]:
    """Fewest and most target pieces, EOS included, for a source of `source_length` pieces, EOS included.

    The absolute options win over the relative ones: `max_length` caps everything, `min_length`, a prefix and phrases
    (both in `prefix_length`) raise a relative limit that has no room for them. What the model has no `positions` for
    cannot be at all.
    """
    longest = math.ceil(decode.max_length_factor * source_length + decode.max_length_offset)
    longest = max(longest, decode.min_length, prefix_length + decode.max_length_offset)
    if decode.max_length is not None:
        longest = min(longest, decode.max_length)
    if positions is not None:
        longest = min(longest, positions)
    shortest = max(decode.min_length, math.ceil(decode.min_length_factor * source_length))
    return min(shortest, longest), longest
