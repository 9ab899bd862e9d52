"""Pairs of similar length put together under a budget of tokens, in an order that (seed, epoch) alone decides."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler

from seq2seq.shapes import Bool, Int, Tensor
from seq2seq.text.special import SpecialIds


def token_batches(
    source_lengths: Sequence[int],
    target_lengths: Sequence[int],
    max_tokens: int,
    *,
    seed: int = 0,
    epoch: int = 0,
    shuffle: bool = True,
) -> list[list[int]]:
    """Indices of the pairs of each batch; every pair is in exactly one.

    Pairs are sorted by their longer side, which the budget counts, then by target and source length, so that a batch
    holds neighbours and little padding; pairs of equal lengths and the batches themselves are shuffled anew each epoch.

    Args:
        source_lengths: Pieces of each source, EOS included.
        target_lengths: Pieces of each target, EOS included.
        max_tokens: A batch's number of pairs times its longest side is at most this.
        seed: With `epoch`, the only thing that the order depends on.
        epoch: Counted from 0.
        shuffle: False keeps batches sorted by length, for evaluation.

    Raises:
        ValueError: if a pair alone is longer than the budget.
    """
    source, target = np.asarray(source_lengths, dtype=np.int64), np.asarray(target_lengths, dtype=np.int64)
    longest = np.maximum(source, target)
    if len(longest) and longest.max() > max_tokens:
        raise ValueError(
            f"pair {int(longest.argmax())} has {longest.max()} pieces, more than the batch budget of {max_tokens}; "
            "raise data.batch_tokens or lower data.max_length"
        )
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(longest)) if shuffle else np.arange(len(longest))
    order = order[np.lexsort((source[order], target[order], longest[order]))]
    batches: list[list[int]] = []
    batch: list[int] = []
    width = 0
    for index, length in zip(order.tolist(), longest[order].tolist(), strict=True):
        if batch and max(width, length) * (len(batch) + 1) > max_tokens:
            batches.append(batch)
            batch, width = [], 0
        batch.append(index)
        width = max(width, length)
    if batch:
        batches.append(batch)
    if shuffle:
        batches = [batches[i] for i in rng.permutation(len(batches)).tolist()]
    return batches


@dataclass(frozen=True)
class Batch:
    """Pairs as padded tensors. Padding stands on the right."""

    src: Int[Tensor, "B S"]
    """Source ids, each closed by EOS."""
    src_valid: Bool[Tensor, "B S"]
    """True at real source positions."""
    tgt_in: Int[Tensor, "B T"]
    """Target ids behind BOS: what the decoder is given."""
    tgt_out: Int[Tensor, "B T"]
    """Target ids closed by EOS: what it has to predict, the same shifted by one."""
    tgt_valid: Bool[Tensor, "B T"]
    """True at real target positions."""
    num_target_tokens: int
    """Real target positions, EOS included: the denominator of the loss."""
    num_source_tokens: int
    """Real source positions, EOS included."""
    indices: tuple[int, ...]
    """Which pairs of the corpus these are; none in a batch that counts for nothing."""

    @property
    def num_source_predictions(self) -> int:
        """What a decoder-only model that learns the source too predicts of it: all pieces but the first of each row,
        and the separator, which stands in the place of EOS."""
        return max(0, self.num_source_tokens - len(self.src))

    @property
    def num_padding(self) -> int:
        """Positions of both sides that hold padding."""
        return self.num_positions - self.num_source_tokens - self.num_target_tokens

    @property
    def num_positions(self) -> int:
        """Positions of both sides, padding included."""
        return self.src.numel() + self.tgt_out.numel()

    def to(self, device: torch.device | str) -> "Batch":
        """The batch with its tensors on `device`."""
        return replace(
            self,
            src=self.src.to(device),
            src_valid=self.src_valid.to(device),
            tgt_in=self.tgt_in.to(device),
            tgt_out=self.tgt_out.to(device),
            tgt_valid=self.tgt_valid.to(device),
        )


def pad(rows: Sequence[Sequence[int]], value: int) -> Int[Tensor, "B L"]:
    """Rows of ids as one tensor, filled up on the right with `value`."""
    valid = lengths_mask([len(row) for row in rows])
    padded = np.full(valid.shape, value, dtype=np.int64)
    padded[valid.numpy()] = np.fromiter(chain.from_iterable(rows), dtype=np.int64)  # row after row, as the mask reads
    return torch.from_numpy(padded)


def lengths_mask(lengths: Sequence[int]) -> Bool[Tensor, "B L"]:
    """True at the first `lengths[b]` positions of row b."""
    # NumPy, which a single line feels
    return torch.from_numpy(np.arange(max(lengths, default=0)) < np.array(lengths, dtype=np.int64)[:, None])


def make_batch(
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    source_special: SpecialIds,
    target_special: SpecialIds,
    indices: Sequence[int] = (),
) -> Batch:
    """Pairs of ids, each closed by EOS, as padded tensors."""
    tgt_out = pad(targets, target_special.pad)
    tgt_in = pad([[target_special.bos, *target[:-1]] for target in targets], target_special.pad)
    lengths, source_lengths = [len(target) for target in targets], [len(source) for source in sources]
    return Batch(
        src=pad(sources, source_special.pad),
        src_valid=lengths_mask(source_lengths),
        tgt_in=tgt_in,
        tgt_out=tgt_out,
        tgt_valid=lengths_mask(lengths),
        num_target_tokens=sum(lengths),
        num_source_tokens=sum(source_lengths),
        indices=tuple(indices),
    )


class EncodedPairs(Dataset[Batch]):
    """Pairs of ids; indexed by a list of pairs it gives them as one batch.

    Indexed by an empty list it gives a batch that counts for nothing, for a process that has to keep step with others
    when nothing is left for it: two rows of EOS, with numbers of tokens that are 0. It takes the same way through the
    model as any other, whatever the attention, where tensors without rows would need a way of their own. (Two rows of
    two, because compiled code treats sizes of 0 and 1 as cases of their own.)

    Args:
        sources: Source ids of each pair, without EOS.
        targets: Target ids of each pair, without EOS.
        source_special: The source vocabulary's special ids.
        target_special: The target vocabulary's.
    """

    def __init__(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        source_special: SpecialIds,
        target_special: SpecialIds,
    ) -> None:
        self.sources, self.targets = sources, targets
        self.source_special, self.target_special = source_special, target_special

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def source_lengths(self) -> list[int]:
        """Pieces of each source, EOS included."""
        return [len(ids) + 1 for ids in self.sources]

    @property
    def target_lengths(self) -> list[int]:
        """Pieces of each target, EOS included."""
        return [len(ids) + 1 for ids in self.targets]

    def __getitem__(self, indices: list[int]) -> Batch:
        if not indices:
            return self._filler()
        return make_batch(
            [[*self.sources[i], self.source_special.eos] for i in indices],
            [[*self.targets[i], self.target_special.eos] for i in indices],
            self.source_special,
            self.target_special,
            indices,
        )

    def _filler(self) -> Batch:
        source, target = [self.source_special.eos] * 2, [self.target_special.eos] * 2
        batch = make_batch([source] * 2, [target] * 2, self.source_special, self.target_special)
        return replace(batch, num_target_tokens=0, num_source_tokens=0)


class UpdateSampler(Sampler[list[list[int]]]):
    """The batches of one process at each optimiser step: lists of `accumulate` batches, those of the last one fewer.

    A step takes the next `accumulate * num_ranks` batches of the one order, and process r every `num_ranks`-th of them
    from the r-th on. So k processes with m batches each learn from the same batches at each step as one process with
    k * m. All of them have equally many steps, and equally many batches in each: where the last step has no batch left
    for a process, it is given one without pairs.

    A step is the unit of training, of logging and of resuming, so nothing ever stops inside an accumulation.

    Args:
        batches: The epoch's batches.
        accumulate: Batches a step and process.
        start: Steps of this epoch that have been taken already; its length still counts them.
        rank: Number of this process, from 0.
        num_ranks: How many processes there are.
    """

    def __init__(
        self,
        batches: Sequence[list[int]],
        accumulate: int = 1,
        start: int = 0,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        assert 0 <= rank < num_ranks
        size = accumulate * num_ranks
        steps = [batches[i : i + size] for i in range(0, len(batches), size)]
        self.updates = [share(step, rank, num_ranks) for step in steps]
        self.start = start

    def __iter__(self) -> Iterator[list[list[int]]]:
        return iter(self.updates[self.start :])

    def __len__(self) -> int:
        return len(self.updates)


def share(batches: Sequence[list[int]], rank: int, num_ranks: int) -> list[list[int]]:
    """Every `num_ranks`-th batch from the `rank`-th on, and one without pairs where the others have one more."""
    own = list(batches[rank::num_ranks])
    return own if len(own) == -(-len(batches) // num_ranks) else [*own, []]


def padding_share(
    source_lengths: Sequence[int], target_lengths: Sequence[int], batches: Sequence[Sequence[int]]
) -> float:
    """Share of the positions of all batches, both sides together, that hold padding."""
    real = positions = 0
    for batch in batches:
        for lengths in (source_lengths, target_lengths):
            here = [lengths[i] for i in batch]
            real += sum(here)
            positions += max(here) * len(here)
    return 1 - real / positions if positions else 0.0
