"""What decoding remembers between steps: keys and values, as values that are passed in and returned."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from seq2seq.nn.attended import Attended, all_but_last
from seq2seq.nn.masks import causal_mask
from seq2seq.shapes import Bool, Float, Int, Tensor

BLOCK = 32
"""Entries that a cache grows by."""

CROWDED = 0.75
"""What is kept of finished sentences is let go of when no more than this share of the sentences goes on."""


@dataclass(frozen=True)
class KeyValue:
    """Keys and values of one attention layer, [R, G, C, K] each."""

    key: Tensor
    value: Tensor

    def stacked(self) -> Float[Tensor, "2 R C G K"]:
        """Both in one tensor, keys first, as `Cache` has them."""
        return torch.stack([self.key.transpose(1, 2), self.value.transpose(1, 2)])

    @staticmethod
    def of(stacked: Float[Tensor, "2 R C G K"]) -> "KeyValue":
        """Those of such a tensor, as views."""
        by_head = stacked.transpose(2, 3)
        return KeyValue(by_head[0], by_head[1])


@dataclass(frozen=True)
class Cache:
    """Keys and values of all layers: a pool of entries for each sentence, written one behind the other.

    It is written in place: use what is returned, and not the cache that a method was called on. No gradients flow
    through: decode under `torch.no_grad`.

    Attributes:
        num_layers: N.
        num_sentences: B.
        length: Entries of each sentence, C.
        buffer: [N, 2, B, entries, G, K], keys first, with room for more; None before the first entry.
    """

    num_layers: int
    num_sentences: int
    length: int = 0
    buffer: Tensor | None = None

    @property
    def room(self) -> int:
        """Entries of each sentence that there is room for."""
        return 0 if self.buffer is None else self.buffer.shape[3]

    def put(self, layer: int, key: Float[Tensor, "B n G K"], value: Float[Tensor, "B n G K"]) -> "Cache":
        """The cache with the next n entries of a layer set; it grows by whole blocks where it is full."""
        end, cache = self.length + key.shape[1], self
        if end > self.room:
            cache = self.grown(end, key)
        assert cache.buffer is not None
        keys_values = cache.buffer[layer]
        keys_values[0, :, self.length : end] = key
        keys_values[1, :, self.length : end] = value
        return cache

    def seen(self, layer: int, end: int) -> KeyValue:
        """The first `end` entries of a layer, [B, G, end, K] each, as views."""
        assert self.buffer is not None
        return KeyValue.of(self.buffer[layer, :, :, :end])

    def grown(self, end: int, like: Float[Tensor, "B n G K"]) -> "Cache":
        """A copy with room for `end` entries, of heads, width and precision like `like`."""
        room = -(-end // BLOCK) * BLOCK
        buffer = like.new_empty(self.num_layers, 2, self.num_sentences, room, *like.shape[2:])
        if self.buffer is not None:
            buffer[:, :, :, : self.length] = self.buffer[:, :, :, : self.length]
        return replace(self, buffer=buffer)

    def only(self, entries: Int[Tensor, "B n"], room: int) -> "Cache":
        """A copy with these entries of each sentence alone, and room for so many."""
        assert self.buffer is not None
        old = self.buffer
        first = torch.arange(0, self.num_sentences * self.room, self.room, device=old.device)[:, None]
        kept = old.flatten(2, 3).index_select(2, (first + entries).flatten())
        count = entries.shape[1]
        if room == count:
            return replace(self, length=count, buffer=kept.view(*old.shape[:3], count, *old.shape[4:]))
        buffer = old.new_empty(*old.shape[:3], room, *old.shape[4:])
        buffer[:, :, :, :count] = kept.view(*old.shape[:3], count, *old.shape[4:])
        return replace(self, length=count, buffer=buffer)

    def select(self, sentences: Int[Tensor, " B2"]) -> "Cache":
        """Copies of the pools of the given sentences, in the given order."""
        if self.buffer is None:
            return replace(self, num_sentences=len(sentences))
        old = self.buffer
        buffer = old.new_empty(*old.shape[:2], len(sentences), *old.shape[3:])
        buffer[:, :, :, : self.length] = old[:, :, :, : self.length].index_select(2, sentences)
        return replace(self, num_sentences=len(sentences), buffer=buffer)

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
class History:
    """What hypotheses have seen so far, in their sentences' pools.

    Hypotheses of a sentence mostly begin alike, so what they have in common is there once, and each knows which entries
    are its own past. When the beam is ranked anew, only that knowledge moves. Entries that no hypothesis sees any more
    are dropped when the pools are full.

    Rows are put side by side by sentence, [B, W], wherever they meet the pools; see `Layout`.

    Attributes:
        cache: The pools.
        seen: [B, W, C], which entries each hypothesis sees; None where there is one a sentence, and it sees them all.
        layout: Which rows belong to which sentence; None for equally many of each, sentence by sentence.
        places: The pools of the sentences that go on, on the CPU; None for all of them, in their order.
        fixed: So many entries at the beginning are kept whether they are seen or not.
    """

    cache: Cache
    seen: Tensor | None = None
    layout: Layout | None = None
    places: Tensor | None = None
    fixed: int = 0

    def prepare(
        self, num_rows: int, num_positions: int, device: torch.device
    ) -> tuple["History", Bool[Tensor, "#B 1 Q C"] | None]:
        """The history with room for the next T positions of every row, and which entries these see, themselves too.

        Returns:
            The history, and the mask of W * T queries a sentence over the entries that there will be; None if all see
            everything.
        """
        width = num_rows // max(1, self.cache.num_sentences) if self.layout is None else self.layout.width
        history = self
        if self.seen is not None and self.cache.buffer is not None:
            added = width * num_positions
            if self.cache.length + added > self.cache.room:
                history = self._without_unseen(added)
        if history.seen is None:
            if num_positions == 1:
                return history, None
            return history, causal_mask(num_positions, self.cache.length, device)
        old = history.seen.repeat_interleave(num_positions, 1)
        own = torch.eye(width, dtype=torch.bool, device=device)[:, None, :, None]
        new = (own & causal_mask(num_positions, device=device)[0, 0][:, None, :]).flatten(2, 3).flatten(0, 1)
        return history, torch.cat([old, new.expand(len(old), -1, -1)], 2)[:, None]

    def after(self, cache: Cache, num_positions: int, mask: Bool[Tensor, "#B 1 Q C"] | None) -> "History":
        """The history when the next T positions of every row have been put into the cache, under this mask."""
        if self.seen is None:
            cache = Cache(cache.num_layers, cache.num_sentences, cache.length + num_positions, cache.buffer)
            return History(cache, None, self.layout, self.places, self.fixed)
        assert mask is not None
        seen = mask[:, 0, num_positions - 1 :: num_positions]
        return replace(self, cache=replace(cache, length=seen.shape[2]), seen=seen)

    def _without_unseen(self, added: int) -> "History":
        """The history with room for more, and without entries that no hypothesis sees."""
        assert self.seen is not None
        live = self.seen.any(1)
        live[:, : self.fixed] = True
        count = int(live.sum(1).max())
        entries = live.logical_not().to(torch.int8).argsort(dim=1, stable=True)[:, :count]
        room = -(-(count + added) // BLOCK) * BLOCK
        seen = self.seen.gather(2, entries[:, None].expand(-1, self.seen.shape[1], -1))
        return replace(self, cache=self.cache.only(entries, room), seen=seen)

    def select(
        self,
        rows: Int[Tensor, " R2"],
        sentences: Int[Tensor, " B2"],
        places: Int[Tensor, " R2"] | None,
        device: torch.device,
    ) -> tuple["History", Int[Tensor, " B3"] | None]:
        """The history of hypotheses `rows` of the sentences that go on; arguments as of the states' `select`.

        Returns:
            The history, and which sentences it has pools of now, in the order of the pools that it had; None if
            nothing has changed about that.
        """
        rows, sentences = rows.cpu(), sentences.cpu()
        total = self.cache.num_sentences
        kept = sentences if self.places is None else self.places[sentences]
        stays = np.array_equal(kept.numpy(), np.arange(total))
        lazy = not stays and places is not None and CROWDED * total < len(kept) <= total
        cache, taken = self.cache, None
        if not stays and not lazy:
            taken = kept.to(device)
            cache, total = self.cache.select(taken), len(kept)
        if places is None:
            width = len(rows) // max(1, len(sentences))
            places = torch.arange(len(sentences)).repeat_interleave(width)
        layout = Layout.of((kept[places] if lazy else places).numpy(), total, device)
        return (
            History(cache, self._seen_by(rows, layout, total, device), layout, kept if lazy else None, self.fixed),
            taken,
        )

    def _seen_by(
        self, rows: Int[Tensor, " R2"], layout: Layout | None, total: int, device: torch.device
    ) -> Bool[Tensor, "B W C"] | None:
        """Which entries of their pools new rows see, which continue the given old ones."""
        width = len(rows) // max(1, total) if layout is None else layout.width
        if self.seen is None:
            if width == 1:
                return None
            return torch.ones(total, width, self.cache.length, dtype=torch.bool, device=device)
        old = rows.to(device) if self.layout is None else self.layout.place_of[rows.to(device)]
        if layout is not None:
            old = old[layout.row_at]
        return self.seen.flatten(0, 1).index_select(0, old).view(total, width, -1)


@dataclass(frozen=True)
class DecoderState:
    """What a decoder remembers between steps: a value that is passed in and returned, never kept on a module.

    Attributes:
        history: Of the target.
        length: Target positions so far.
        source: [N, 2, B, S, G, K], keys and values of the source in each layer: one row a sentence, not a beam.
        cross_mask: [B, 1, 1, S], True where a source position is real.
        attended: What a layer has looked at, if that is watched.
    """

    history: History
    length: int
    source: Tensor
    cross_mask: Tensor
    attended: Attended | None = None

    def of_source(self, layer: int) -> KeyValue:
        """A layer's keys and values of the source, [B, G, S, K] each, as views."""
        return KeyValue.of(self.source[layer])

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
        history, taken = self.history.select(rows, sentences, places, self.cross_mask.device)
        source, mask = self.source, self.cross_mask
        if taken is not None:
            source, mask = source.index_select(2, taken), mask.index_select(0, taken)
        attended = None if self.attended is None else self.attended.select(rows)
        return DecoderState(history, self.length, source, mask, attended)

    def num_bytes(self) -> int:
        """Bytes that the buffers take."""
        return self.history.cache.num_bytes() + self.source.numel() * self.source.element_size()


@dataclass(frozen=True)
class CausalState:
    """What a decoder-only model remembers between steps: a value, as `DecoderState`. Hypotheses share their source.

    Attributes:
        history: Of source and target; what is padding is seen by no hypothesis.
        length: Positions so far, padding included.
        next_place: [R, 1], the position, counted from a row's first real piece, of the piece that comes next.
        source_mask: [B, 1, 1, P], True where a position of the source is real.
        attended: What a layer has looked at, if that is watched.
    """

    history: History
    length: int
    next_place: Tensor
    source_mask: Tensor
    attended: Attended | None = None

    def watch(self, layer: int, head: int | None) -> "CausalState":
        """The same, the attention of a layer added up from now on: after the source, one row a sentence."""
        return replace(self, attended=Attended.nothing(self.source_mask[:, 0, 0], layer, head))

    def select(
        self, rows: Int[Tensor, " R2"], sentences: Int[Tensor, " B2"], places: Int[Tensor, " R2"] | None = None
    ) -> "CausalState":
        """The state of hypotheses `rows`, in one call for everything that is kept; arguments as in `DecoderState`."""
        device = self.next_place.device
        history, taken = self.history.select(rows, sentences, places, device)
        mask = self.source_mask if taken is None else self.source_mask.index_select(0, taken)
        attended = None if self.attended is None else self.attended.select(rows)
        next_place = self.next_place.index_select(0, rows.to(device))
        return CausalState(history, self.length, next_place, mask, attended)

    def num_bytes(self) -> int:
        """Bytes that the buffers of keys and values take."""
        return self.history.cache.num_bytes()
