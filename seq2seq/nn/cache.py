"""What decoding remembers between steps: keys and values, as values that are passed in and returned."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from seq2seq.nn.attended import Attended, all_but_last
from seq2seq.shapes import Bool, Float, Int, Tensor

BLOCK = 32
"""Positions that a cache grows by."""

MANY = 0.4
"""A buffer is copied as a whole when more than this share of its rows moves."""

CROWDED = 0.75
"""Keys and values of finished sentences are let go of when no more than this share of the sentences goes on."""


@dataclass(frozen=True)
class KeyValue:
    """Keys and values of one attention layer, [R, G, C, K] each."""

    key: Tensor
    value: Tensor

    def select(self, rows: Int[Tensor, " R2"]) -> "KeyValue":
        """Copies of the given rows, in the given order."""
        return KeyValue(self.key.index_select(0, rows), self.value.index_select(0, rows))


@dataclass(frozen=True)
class Cache:
    """Keys and values of all layers, of the positions so far.

    All of them are in one buffer, so that moving a row is one operation. It is written in place: use what `put`,
    `advance` and `select` return, and not the cache that they were called on. No gradients flow through: decode under
    `torch.no_grad`.

    Attributes:
        num_layers: N.
        rows: Rows in use, R.
        length: Positions in use, the same for every row.
        buffer: [N, 2, rows, G, positions, K], keys first, with room for more; None before the first position.
    """

    num_layers: int
    rows: int = 0
    length: int = 0
    buffer: Tensor | None = None

    def put(self, layer: int, key: Float[Tensor, "R G T K"], value: Float[Tensor, "R G T K"]) -> "Cache":
        """The cache with the next T positions of a layer set; it grows by whole blocks where it is full."""
        end = self.length + key.shape[2]
        cache = self
        if self.buffer is None or end > self.buffer.shape[4]:
            cache = self._with_room(end, key)
        assert cache.buffer is not None
        keys_values = cache.buffer[layer]
        keys_values[0, : cache.rows, :, self.length : end] = key
        keys_values[1, : cache.rows, :, self.length : end] = value
        return cache

    def seen(self, layer: int, end: int) -> KeyValue:
        """The first `end` positions of a layer, as views."""
        assert self.buffer is not None
        keys_values = self.buffer[layer, :, : self.rows, :, :end]
        return KeyValue(keys_values[0], keys_values[1])

    def advance(self, num_positions: int) -> "Cache":
        """The cache after that many positions of every layer have been set."""
        return replace(self, length=self.length + num_positions)

    def _with_room(self, end: int, like: Float[Tensor, "R G T K"]) -> "Cache":
        """A copy with room for `end` positions, of heads, width and precision like `like`."""
        room = -(-end // BLOCK) * BLOCK
        rows, heads, _, width = like.shape
        buffer = like.new_empty(self.num_layers, 2, rows, heads, room, width)
        if self.buffer is not None:
            buffer[:, :, :, :, : self.length] = self.buffer[:, :, :rows, :, : self.length]
        return Cache(self.num_layers, rows, self.length, buffer)

    def select(self, rows: Int[Tensor, " R2"], shared: int = 0, same: Bool[np.ndarray, " R2"] | None = None) -> "Cache":
        """The cache of the given rows, in the given order; rows that stay where they are are not touched.

        Args:
            rows: For each new row the old one that it continues.
            shared: So many positions at the beginning are equal in some rows, ...
            same: ... namely in the new rows at which this is true and in the old rows that stand in their places.
        """
        if self.buffer is None:
            return replace(self, rows=len(rows))
        sources = rows.cpu().numpy()
        places = np.arange(len(sources))
        moved = sources != places
        # writing rows into a buffer takes about twice as long as copying them out into a new one
        if len(sources) > self.rows or moved.sum() > MANY * len(sources):
            return self._copied(rows.to(self.buffer.device))
        if same is None or shared == 0:
            self._move(sources, places, moved, 0)
        else:
            self._move(sources, places, moved & same, shared)
            self._move(sources, places, moved & ~same, 0)
        return replace(self, rows=len(sources))

    def _move(
        self,
        sources: Int[np.ndarray, " R2"],
        places: Int[np.ndarray, " R2"],
        moved: Bool[np.ndarray, " R2"],
        start: int,
    ) -> None:
        """Copy rows within the buffer, from position `start` on."""
        if not moved.any():
            return
        assert self.buffer is not None
        used = self.buffer[:, :, :, :, start : self.length]
        device = self.buffer.device
        taken = used.index_select(2, torch.from_numpy(sources[moved]).to(device))
        used.index_copy_(2, torch.from_numpy(places[moved]).to(device), taken)

    def _copied(self, rows: Int[Tensor, " R2"]) -> "Cache":
        """A new buffer, of as much room, with copies of the rows."""
        assert self.buffer is not None
        old = self.buffer
        buffer = old.new_empty(*old.shape[:2], len(rows), *old.shape[3:])
        torch.index_select(old[..., : self.length, :], 2, rows, out=buffer[..., : self.length, :])
        return replace(self, rows=len(rows), buffer=buffer)

    def num_bytes(self) -> int:
        """Bytes that the buffer takes."""
        return 0 if self.buffer is None else self.buffer.numel() * self.buffer.element_size()


@dataclass(frozen=True)
class Layout:
    """Where rows stand that are put side by side by sentence, [sentences, W], where rows of a sentence need not be
    neighbours, nor equally many.

    Attributes:
        width: W, the most rows that a sentence has.
        row_at: [sentences * W], the row at each place; any row where there is none.
        place_of: [R], the place of each row.
    """

    width: int
    row_at: Tensor
    place_of: Tensor

    @staticmethod
    def of(sentences: Int[np.ndarray, " R"], num_sentences: int, device: torch.device) -> "Layout | None":
        """The layout of rows that belong to these sentences; None if it is the plain one.

        That is: rows sentence by sentence, and equally many of each.
        """
        counts = np.bincount(sentences, minlength=num_sentences)
        width = int(counts.max(initial=1))
        if counts.min(initial=width) == width and (sentences[1:] >= sentences[:-1]).all():
            return None
        order = sentences.argsort(kind="stable")
        before = np.cumsum(counts) - counts
        place_of = np.empty_like(sentences)
        place_of[order] = sentences[order] * width + np.arange(len(sentences)) - before[sentences[order]]
        row_at = np.zeros(num_sentences * width, dtype=np.int64)
        row_at[place_of] = np.arange(len(sentences))
        return Layout(width, torch.from_numpy(row_at).to(device), torch.from_numpy(place_of).to(device))


@dataclass(frozen=True)
class DecoderState:
    """What a decoder remembers between steps: a value that is passed in and returned, never kept on a module.

    Attributes:
        cache: Keys and values of the target so far, R rows.
        cross_attention: Each layer's keys and values of the source, [B, G, S, K]: one row a sentence, not a beam.
        cross_mask: [B, 1, 1, S], True where a source position is real.
        layout: Which rows belong to which sentence; None for equally many of each, sentence by sentence.
        places: The rows of `cross_attention` that the sentences have which go on; None for all of them.
        attended: What a layer has looked at, if that is watched.
    """

    cache: Cache
    cross_attention: tuple[KeyValue, ...]
    cross_mask: Tensor
    layout: Layout | None = None
    places: Tensor | None = None
    attended: Attended | None = None

    @property
    def length(self) -> int:
        """Target positions in the cache."""
        return self.cache.length

    def watch(self, layer: int, head: int | None) -> "DecoderState":
        """The same, the attention of a layer added up from now on: before the first piece, one row a sentence."""
        return replace(self, attended=Attended.nothing(all_but_last(self.cross_mask[:, 0, 0]), layer, head))

    def select(
        self, rows: Int[Tensor, " R2"], sentences: Int[Tensor, " B2"], places: Int[Tensor, " R2"] | None = None
    ) -> "DecoderState":
        """The state of hypotheses `rows` of the sentences that go on, in one call for everything that is kept.

        Args:
            rows: For each new row the old row that it continues.
            sentences: For each sentence that is kept its old place.
            places: For each new row the new place of its sentence. None: rows are sentence by sentence, and equally
                many of each.
        """
        device = self.cross_mask.device
        kept = sentences.to(device) if self.places is None else self.places[sentences.to(device)]
        cross, mask, total = self.cross_attention, self.cross_mask, self.cross_mask.shape[0]
        everyone = len(kept) == total and torch.equal(kept, torch.arange(total, device=device))
        if not everyone and not (len(kept) <= total and places is not None and len(kept) > CROWDED * total):
            cross, mask, total = tuple(layer.select(kept) for layer in cross), mask.index_select(0, kept), len(kept)
            everyone = True
        layout = None
        if places is not None:
            where = places.cpu() if everyone else kept.cpu()[places.cpu()]
            layout = Layout.of(where.numpy(), total, device)
        attended = None if self.attended is None else self.attended.select(rows)
        return DecoderState(self.cache.select(rows), cross, mask, layout, None if everyone else kept, attended)

    def num_bytes(self) -> int:
        """Bytes that the buffers take."""
        return self.cache.num_bytes() + sum(
            part.numel() * part.element_size() for layer in self.cross_attention for part in (layer.key, layer.value)
        )


@dataclass(frozen=True)
class CausalState:
    """What a decoder-only model remembers between steps: a value, as `DecoderState`.

    Attributes:
        cache: Keys and values of all positions, padding of uneven prompts included, R rows.
        valid: [R, length], True where a position is real.
        next_place: [R, 1], the position, counted from a row's first real piece, of the piece that comes next.
        shared: So many positions at the beginning are the same in all rows of a sentence.
        places: [R], on the CPU, the place of each row's sentence.
        attended: What a layer has looked at, if that is watched.
    """

    cache: Cache
    valid: Tensor
    next_place: Tensor
    shared: int
    places: Tensor
    attended: Attended | None = None

    @property
    def length(self) -> int:
        """Positions in the cache."""
        return self.cache.length

    def watch(self, layer: int, head: int | None) -> "CausalState":
        """The same, the attention of a layer added up from now on: after the source, one row a sentence."""
        return replace(self, attended=Attended.nothing(self.valid, layer, head))

    def select(
        self, rows: Int[Tensor, " R2"], sentences: Int[Tensor, " B2"], places: Int[Tensor, " R2"] | None = None
    ) -> "CausalState":
        """The state of hypotheses `rows`, in one call for everything that is kept.

        Args:
            rows: For each new row the old row that it continues.
            sentences: For each sentence that is kept its old place.
            places: For each new row the new place of its sentence; None as in `DecoderState.select`.
        """
        device = self.valid.device
        if places is None:
            places = torch.arange(len(sentences)).repeat_interleave(len(rows) // max(1, len(sentences)))
        places = places.cpu()
        # what stood in a new row's place before has the same source if it was of the same sentence
        before = self.places[: len(rows)]
        same = np.zeros(len(rows), dtype=bool)
        same[: len(before)] = (sentences.cpu()[places[: len(before)]] == before).numpy()
        cache = self.cache.select(rows, self.shared, same)
        rows = rows.to(device)
        return CausalState(
            cache,
            self.valid.index_select(0, rows),
            self.next_place.index_select(0, rows),
            self.shared,
            places,
            None if self.attended is None else self.attended.select(rows),
        )

    def num_bytes(self) -> int:
        """Bytes that the buffers of keys and values take."""
        return self.cache.num_bytes()
