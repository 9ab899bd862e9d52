"""One pool of keys and values for all hypotheses of a batch, of which each knows its own entries by their numbers.

Nothing is copied when a beam is ranked anew, and a hypothesis reads its own past alone. Attention reads the pool by
numbers, which torch's kernels cannot; compiled code can (`seq2seq.models.ahead`). The modules have `seq2seq.nn.cache`.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from seq2seq.nn.cache import BLOCK
from seq2seq.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True)
class Pool:
    """Keys and values of all layers, one entry a row and position. No gradients flow through.

    It is written in place: use what is returned, and not the pool that a method was called on.

    Attributes:
        buffer: [N, 2, E, G, K], keys first, with room for E entries.
        used: How many of them have been written.
    """

    buffer: Tensor
    used: int = 0

    @property
    def room(self) -> int:
        """E."""
        return self.buffer.shape[2]

    def put(self, added: Float[Tensor, "N 2 R G K"]) -> "Pool":
        """The pool with an entry for each row, for which there must be room."""
        end = self.used + added.shape[2]
        assert end <= self.room
        self.buffer.numpy()[:, :, self.used : end] = added.numpy()
        return Pool(self.buffer, end)

    def only(self, entries: Int[Tensor, " n"], room: int) -> "Pool":
        """A copy with these entries alone, in this order, and room for so many."""
        old = self.buffer
        buffer = old.new_empty(*old.shape[:2], room, *old.shape[3:])
        buffer[:, :, : len(entries)] = old.index_select(2, entries)
        return Pool(buffer, len(entries))


@dataclass(frozen=True)
class PooledState:
    """What a decoder remembers between steps: a value, as `seq2seq.nn.cache.DecoderState` is.

    What is done at every step is done by NumPy, which takes a few microseconds where torch takes ten or twenty.

    Attributes:
        pool: Keys and values so far.
        entries: [R, C], the numbers of each row's own entries, in order.
        seen: [R, C], which of them are real; None if all are.
        length: Positions so far, padding included.
        next_place: [R, 1], the position of the piece that comes next, where rows differ in it; None where they do not.
        sentence_at: [R], the sentence of each row, as `source` has them.
        source: [N, 2, B, S, G, K], keys and values of the source in each layer; of a decoder-only model [0].
        source_valid: [B, S], true at real source positions.
    """

    pool: Pool
    entries: Int[np.ndarray, "R C"]
    seen: Bool[np.ndarray, "R C"] | None
    length: int
    next_place: Int[np.ndarray, "R 1"] | None
    sentence_at: Int[np.ndarray, " R"]
    source: Tensor
    source_valid: Tensor

    def select(
        self, rows: Int[Tensor, " R2"], sentences: Int[Tensor, " B2"], places: Int[Tensor, " R2"] | None = None
    ) -> "PooledState":
        """The state of hypotheses `rows`; arguments as of `DecoderState.select`. What others have seen stays there."""
        kept = rows.numpy()
        return PooledState(
            self.pool,
            self.entries[kept],
            None if self.seen is None else self.seen[kept],
            self.length,
            None if self.next_place is None else self.next_place[kept],
            self.sentence_at[kept],
            self.source,
            self.source_valid,
        )

    @property
    def attended(self) -> None:
        """What a layer has looked at: compiled code does not show it."""
        return None

    def watch(self, layer: int, head: int | None) -> "PooledState":
        """Refused.

        Raises:
            ValueError: always; compiled code does not show its attention.
        """
        raise ValueError("compiled code does not show the attention that a coverage penalty goes by; leave it out")

    def with_room(self) -> "PooledState":
        """The same, with room for an entry of each row. It grows by blocks, and drops what no row sees, when full."""
        num_rows = len(self.entries)
        if self.pool.used + num_rows <= self.pool.room:
            return self
        kept, numbers = _in_order_of_use(self.entries)
        return replace(self, pool=self.pool.only(kept, len(kept) + BLOCK * num_rows), entries=numbers)

    def after(self, added: Float[Tensor, "N 2 R G K"]) -> "PooledState":
        """The state when each row has got an entry."""
        first, pool = self.pool.used, self.pool.put(added)
        own = np.arange(first, pool.used)[:, None]
        # not dataclasses.replace, which a step of a small model feels
        return PooledState(
            pool,
            np.concatenate([self.entries, own], axis=1),
            None if self.seen is None else np.concatenate([self.seen, np.ones_like(own, dtype=bool)], axis=1),
            self.length + 1,
            None if self.next_place is None else self.next_place + 1,
            self.sentence_at,
            self.source,
            self.source_valid,
        )

    def num_bytes(self) -> int:
        """Bytes that the buffers of keys and values take."""
        return sum(part.numel() * part.element_size() for part in (self.pool.buffer, self.source))


def _in_order_of_use(entries: Int[np.ndarray, "R C"]) -> tuple[Int[Tensor, " n"], Int[np.ndarray, "R C"]]:
    """Each entry once, in the order in which rows need them, and what the rows' entries are called then.

    So the past of a hypothesis lies together, which is read faster than what is strewn over the pool.
    """
    kept, first, numbers = np.unique(entries, return_index=True, return_inverse=True)
    order = first.argsort()
    renamed = np.empty_like(order)
    renamed[order] = np.arange(len(order))
    return torch.from_numpy(kept[order]), renamed[numbers].reshape(entries.shape)
