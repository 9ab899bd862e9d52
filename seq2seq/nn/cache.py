"""Keys and values kept between decode steps."""

from dataclasses import dataclass

import torch

from seq2seq.shapes import Float, Int, Tensor

BLOCK = 32
"""Positions that a cache grows by."""


@dataclass(frozen=True)
class KeyValue:
    """Keys and values of one attention layer, [R, G, C, K] each. C may be more than the positions in use."""

    key: Tensor
    value: Tensor

    @classmethod
    def empty(cls, like: Float[Tensor, "R G T K"]) -> "KeyValue":
        """A cache of rows, key/value heads and precision like `like`, with no room yet."""
        room = like.new_empty(like.shape[0], like.shape[1], 0, like.shape[3])
        return cls(room, room)

    def write(self, start: int, key: Float[Tensor, "R G T K"], value: Float[Tensor, "R G T K"]) -> "KeyValue":
        """The cache with positions start, start + 1, ... set, grown by whole blocks when it is full.

        The buffers are written in place where they have room: use the returned cache, not this one.
        """
        end = start + key.shape[2]
        if end <= self.key.shape[2]:
            grown = self
        else:
            room = -(-end // BLOCK) * BLOCK
            grown = KeyValue(_with_room(self.key, start, room), _with_room(self.value, start, room))
        grown.key[:, :, start:end] = key
        grown.value[:, :, start:end] = value
        return grown

    def until(self, end: int) -> "KeyValue":
        """The first `end` positions, as views."""
        return KeyValue(self.key[:, :, :end], self.value[:, :, :end])

    def select(self, rows: Int[Tensor, " R2"], used: int | None = None) -> "KeyValue":
        """Copies of the given rows, in the given order; of their first `used` positions, if that is given.

        The room behind those positions is kept but not copied. No gradients flow through: decode under
        `torch.no_grad`.
        """
        return KeyValue(_rows_of(self.key, rows, used), _rows_of(self.value, rows, used))


def _with_room(old: Float[Tensor, "R G C K"], used: int, room: int) -> Float[Tensor, "R G C2 K"]:
    """The first `used` positions of `old` in a buffer for `room` positions."""
    new = old.new_empty(old.shape[0], old.shape[1], room, old.shape[3])
    new[:, :, :used] = old[:, :, :used]
    return new


def _rows_of(old: Float[Tensor, "R G C K"], rows: Int[Tensor, " R2"], used: int | None) -> Float[Tensor, "R2 G C K"]:
    """The given rows of a buffer; what stands behind `used` positions is left to chance."""
    if used is None or used == old.shape[2]:
        return old.index_select(0, rows)
    new = old.new_empty(len(rows), *old.shape[1:])
    torch.index_select(old[:, :, :used], 0, rows, out=new[:, :, :used])
    return new


@dataclass(frozen=True)
class DecoderState:
    """What a decoder remembers between steps: a value that is passed in and returned, never kept on a module.

    Attributes:
        length: Target positions in the cache, the same for every row.
        self_attention: Each layer's keys and values of the target so far, R rows: beams of a sentence are neighbours.
        cross_attention: Each layer's keys and values of the source, [B, G, S, K]: one row a sentence, not a beam.
        cross_mask: True where a source position is real.
    """

    length: int
    self_attention: tuple[KeyValue, ...]
    cross_attention: tuple[KeyValue, ...]
    cross_mask: Tensor

    def select(self, rows: Int[Tensor, " R2"], sentences: Int[Tensor, " B2"]) -> "DecoderState":
        """The state of hypotheses `rows` of the sentences that go on, in one call for everything that is kept.

        Args:
            rows: For each new row the old row that it continues; rows of a sentence are neighbours and equally many.
            sentences: Old index of each sentence that is kept, ascending.
        """
        cross, mask = self.cross_attention, self.cross_mask
        if len(sentences) != mask.shape[0]:
            cross = tuple(layer.select(sentences) for layer in cross)
            mask = mask.index_select(0, sentences)
        own = tuple(layer.select(rows, self.length) for layer in self.self_attention)
        return DecoderState(self.length, own, cross, mask)

    def num_bytes(self) -> int:
        """Bytes that the buffers take."""
        return _num_bytes((*self.self_attention, *self.cross_attention))


@dataclass(frozen=True)
class CausalState:
    """What a decoder-only model remembers between steps: a value, as `DecoderState`.

    Attributes:
        length: Positions in the cache, padding of uneven prompts included; the same for every row.
        layers: Each layer's keys and values, R rows: beams of a sentence are neighbours.
        valid: [R, length], True where a position is real.
        next_place: [R, 1], the position, counted from a row's first real piece, of the piece that comes next.
    """

    length: int
    layers: tuple[KeyValue, ...]
    valid: Tensor
    next_place: Tensor

    def select(self, rows: Int[Tensor, " R2"], sentences: Int[Tensor, " B2"]) -> "CausalState":
        """The state of hypotheses `rows`, in one call for everything that is kept.

        Args:
            rows: For each new row the old row that it continues.
            sentences: Not needed, as nothing is kept by the sentence.
        """
        layers = tuple(layer.select(rows, self.length) for layer in self.layers)
        return CausalState(self.length, layers, self.valid.index_select(0, rows), self.next_place.index_select(0, rows))

    def num_bytes(self) -> int:
        """Bytes that the buffers of keys and values take."""
        return _num_bytes(self.layers)


def _num_bytes(layers: tuple[KeyValue, ...]) -> int:
    return sum(part.numel() * part.element_size() for layer in layers for part in (layer.key, layer.value))
