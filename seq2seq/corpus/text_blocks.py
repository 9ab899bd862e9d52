"""Plain text packed into blocks of pieces, in an order that (seed, epoch) alone decides.

Each document is BOS, its pieces and EOS. Every piece but BOS is predicted exactly once in an epoch, from what stands
before it in its block: a part of a document gives `length` pieces to read, and the same shifted by one to predict, so
neighbouring parts share the one piece at their border.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.utils.data import Dataset

from seq2seq.shapes import Bool, Int, Tensor
from seq2seq.text.special import SpecialIds


@dataclass(frozen=True)
class TextBatch:
    """Blocks of text as tensors. Padding stands on the right."""

    ids: Int[Tensor, "B T"]
    """What the model reads."""
    targets: Int[Tensor, "B T"]
    """What it has to predict at each place, the same shifted by one."""
    counted: Bool[Tensor, "B T"]
    """Where the prediction counts: not at padding, and not where the next document begins."""
    documents: Int[Tensor, "B T"] | None
    """For each place the number of its part within the block, ascending; None where every block is one part."""
    num_target_tokens: int
    """Predictions that count: the denominator of the loss."""
    num_padding: int
    """Places that hold padding."""
    indices: tuple[int, ...]
    """Which blocks of the epoch these are; none in a batch that counts for nothing."""

    @property
    def num_positions(self) -> int:
        """Places, padding included."""
        return self.ids.numel()

    def to(self, device: torch.device | str) -> "TextBatch":
        """The batch with its tensors on `device`."""
        documents = self.documents.to(device) if self.documents is not None else None
        return replace(
            self,
            ids=self.ids.to(device),
            targets=self.targets.to(device),
            counted=self.counted.to(device),
            documents=documents,
        )


@dataclass(frozen=True)
class Part:
    """A stretch of an encoded text: reads pieces begin to begin + length - 1, predicts the same shifted by one."""

    begin: int
    length: int


class EncodedText:
    """Documents as one row of ids.

    Args:
        documents: Ids of each document, without BOS and EOS.
        special: The vocabulary's special ids.
    """

    def __init__(self, documents: Sequence[Sequence[int]], special: SpecialIds) -> None:
        rows = [np.array([special.bos, *ids, special.eos], dtype=np.int32) for ids in documents]
        lengths = np.array([len(row) for row in rows])
        self.ids = np.concatenate(rows)
        self.ends = lengths.cumsum()
        """Where each document ends: the place after its EOS."""
        self.begins = self.ends - lengths
        """Where each document's BOS stands."""
        self.predicted = np.ones(len(self.ids), dtype=bool)
        """What is predicted in an epoch: all but the BOS of each document."""
        self.predicted[self.begins] = False
        self.pad = special.pad

    @property
    def num_predicted(self) -> int:
        """Pieces that are predicted in an epoch."""
        return int(self.predicted.sum())

    def stretches(self, length: int, number: int) -> list[list[int]]:
        """Ids from `number` places spread evenly, at most `length` from each, EOS not among them.

        None goes beyond its document; there are fewer of them in a text shorter than `number`.
        """
        found = []
        for start in sorted({i * len(self.ids) // number for i in range(number)}):
            document = int(self.ends.searchsorted(start, side="right"))
            end = min(start + length, int(self.ends[document]) - 1)
            if end > start:
                found.append(self.ids[start:end].tolist())
        return found

    def parts(self, length: int, *, apart: bool, rng: np.random.Generator | None) -> list[Part]:
        """The text cut into parts of at most `length` pieces.

        Args:
            length: Pieces of a block.
            apart: Each document is cut by itself, and not at all if it fits. Otherwise the whole row is cut.
            rng: Where the first cut of a long document is, is drawn at random; None cuts from its beginning on.
        """
        spans = zip(self.begins.tolist(), self.ends.tolist(), strict=True) if apart else [(0, len(self.ids))]
        found = []
        for begin, end in spans:
            last = end - 1  # predicted, but not read
            size = length
            if rng is not None and last - begin > length:
                size = int(rng.integers(1, length + 1))
            while begin < last:
                found.append(Part(begin, min(size, last - begin)))
                begin += size
                size = length
        return found


def pack(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Indices of the parts in each block; best fit, the longest first.

    Args:
        lengths: Of the parts, each at most `room`. Parts of equal length are taken in the given order.
        room: Pieces of a block.

    Source:
        Ding et al. 2024, arXiv:2404.10830, section 3 (best-fit packing).
    """
    blocks: list[list[int]] = []
    with_room: list[list[int]] = [[] for _ in range(room + 1)]
    is_open = 0  # bit r is set where there is a block with room for r more
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        length = lengths[index]
        fitting = is_open >> length
        left = length + (fitting & -fitting).bit_length() - 1 if fitting else room
        if fitting:
            block = with_room[left].pop()
            blocks[block].append(index)
            if not with_room[left]:
                is_open ^= 1 << left
        else:
            block = len(blocks)
            blocks.append([index])
        left -= length
        if left:
            with_room[left].append(block)
            is_open |= 1 << left
    return blocks


class PackedText(Dataset[TextBatch]):
    """The blocks of an epoch; indexed by a list of blocks it gives them as one batch.

    Indexed by an empty list it gives a batch that counts for nothing, as `EncodedPairs` does.

    Args:
        text: The encoded text.
        blocks: The parts of each block.
    """

    def __init__(self, text: EncodedText, blocks: Sequence[Sequence[Part]]) -> None:
        self.text, self.blocks = text, blocks

    def __len__(self) -> int:
        return len(self.blocks)

    def batches(self, num_blocks: int) -> list[list[int]]:
        """Indices of the blocks of each batch, in order."""
        return [list(range(i, min(i + num_blocks, len(self)))) for i in range(0, len(self), num_blocks)]

    def padding_share(self, num_blocks: int) -> float:
        """Share of the places of all batches that holds padding."""
        lengths = [sum(part.length for part in block) for block in self.blocks]
        places = sum(len(batch) * max(lengths[i] for i in batch) for batch in self.batches(num_blocks))
        return 1 - sum(lengths) / places

    def __getitem__(self, indices: list[int]) -> TextBatch:
        if not indices:
            return self._filler()
        blocks = [self.blocks[index] for index in indices]
        width = max(sum(part.length for part in block) for block in blocks)
        places = np.full((len(blocks), width), -1)
        documents = np.zeros((len(blocks), width), dtype=np.int64)
        for row, block in enumerate(blocks):
            start = 0
            for number, part in enumerate(block):
                end = start + part.length
                places[row, start:end] = np.arange(part.begin, part.begin + part.length)
                documents[row, start:end] = number
                start = end
            documents[row, start:] = len(block)
        real = places >= 0
        counted = real & self.text.predicted[places + 1]
        ids = np.where(real, self.text.ids[places], self.text.pad).astype(np.int64)
        targets = np.where(real, self.text.ids[places + 1], self.text.pad).astype(np.int64)
        return TextBatch(
            ids=torch.from_numpy(ids),
            targets=torch.from_numpy(targets),
            counted=torch.from_numpy(counted),
            # right-hand padding is hidden by causality alone
            documents=torch.from_numpy(documents) if any(len(block) > 1 for block in blocks) else None,
            num_target_tokens=int(counted.sum()),
            num_padding=int((~real).sum()),
            indices=tuple(indices),
        )

    def _filler(self) -> TextBatch:
        ids = torch.full((2, 2), self.text.pad)
        return TextBatch(ids, ids, torch.ones(2, 2, dtype=torch.bool), None, 0, 0, ())


def epoch_blocks(
    text: EncodedText, length: int, *, apart: bool, seed: int = 0, epoch: int = 0, shuffle: bool = True
) -> PackedText:
    """The blocks of an epoch, in order: cut anew at other places each epoch.

    Args:
        text: The encoded text.
        length: Pieces of a block.
        apart: Documents are cut and packed by themselves; otherwise each block is one stretch of the text.
        seed: With `epoch`, the only thing that cuts and order depend on.
        epoch: Counted from 0.
        shuffle: False cuts from the beginning on and keeps the order, for evaluation.
    """
    rng = np.random.default_rng((seed, epoch))
    parts = text.parts(length, apart=apart, rng=rng if shuffle else None)
    if shuffle:
        parts = [parts[i] for i in rng.permutation(len(parts)).tolist()]
    packed = pack([part.length for part in parts], length) if apart else [[i] for i in range(len(parts))]
    blocks = [[parts[i] for i in block] for block in packed]
    if shuffle:
        blocks = [blocks[i] for i in rng.permutation(len(blocks)).tolist()]
    return PackedText(text, blocks)
