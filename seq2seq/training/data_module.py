"""Encoded text and its batches, epoch by epoch."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from pytorch_lightning import LightningDataModule
from torch.utils.data import DataLoader

from seq2seq.config import DataConfig
from seq2seq.corpus.batching import Batch, EncodedPairs, UpdateSampler, padding_share, token_batches
from seq2seq.corpus.parallel import ParallelText
from seq2seq.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of both sides; one and the same with a joint vocabulary."""

    source: Tokenizer
    target: Tokenizer


@dataclass(frozen=True)
class Position:
    """A place in the training text: `steps` optimiser steps into epoch `epoch`."""

    epoch: int
    steps: int


class ParallelDataModule(LightningDataModule):
    """Training batches whose order depends on (seed, epoch) alone, and validation batches that never change.

    Args:
        train: Training pairs.
        valid: Validation pairs.
        tokenizers: Text to ids.
        config: Budgets, limits, sampling.
        accumulate: Batches an optimiser step.
        seed: Of the order and of subword sampling.
    """

    def __init__(
        self,
        train: ParallelText,
        valid: ParallelText,
        tokenizers: Tokenizers,
        config: DataConfig,
        accumulate: int = 1,
        seed: int = 1,
    ) -> None:
        super().__init__()
        self.tokenizers, self.config, self.accumulate, self.seed = tokenizers, config, accumulate, seed
        self.resumed = Position(epoch=0, steps=0)
        self.samples = config.tokenizer.sampling_alpha > 0 or config.tokenizer.bpe_dropout > 0
        plain = self._encode(train, "training")
        kept = [i for i, fits in enumerate(self._fits(plain)) if fits]
        self.num_left_out = len(plain) - len(kept)
        if self.num_left_out:
            log.warning(
                "%d of %d training pairs have more than data.max_length=%d pieces and are left out",
                self.num_left_out,
                len(plain),
                config.max_length,
            )
        if not kept:
            raise ValueError(
                f"every training pair has more than data.max_length={config.max_length} pieces; raise data.max_length"
            )
        self.train_text = [(train.source[i], train.target[i]) for i in kept]
        self.plain = EncodedPairs(
            [plain.sources[i] for i in kept],
            [plain.targets[i] for i in kept],
            plain.source_special,
            plain.target_special,
        )
        self.valid = self._encode(valid, "validation")

    def state_dict(self) -> dict[str, int]:
        """Where in the training text the run is, for the checkpoint."""
        assert self.trainer is not None
        steps = self.trainer.fit_loop.epoch_loop.batch_progress.current.completed
        return {"epoch": self.trainer.current_epoch, "steps": steps}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on in the middle of the checkpoint's epoch."""
        self.resumed = Position(**state_dict)

    def epoch_pairs(self, epoch: int) -> EncodedPairs:
        """The training pairs as ids; with subword sampling, segmented anew for the epoch."""
        if not self.samples:
            return self.plain
        sources = [self._sample(0, epoch, index) for index in range(len(self.plain))]
        targets = [self._sample(1, epoch, index) for index in range(len(self.plain))]
        return EncodedPairs(sources, targets, self.plain.source_special, self.plain.target_special)

    def _sample(self, side: int, epoch: int, index: int) -> Sequence[int]:
        """One side of a pair in a segmentation of the epoch's; in the plain one if that is too long for a batch."""
        tokenizer = (self.tokenizers.source, self.tokenizers.target)[side]
        # Even numbers for sources and odd ones for targets, so that the two sides of a pair get draws of their own.
        key = (self.seed, epoch, 2 * index + side)
        ids = tokenizer.sample(self.train_text[index][side], config=self.config.tokenizer, key=key)
        plain = (self.plain.sources, self.plain.targets)[side][index]
        return ids if len(ids) < self.config.max_length else plain

    def epoch_batches(self, pairs: EncodedPairs, epoch: int) -> list[list[int]]:
        """The epoch's batches, in order."""
        return token_batches(
            pairs.source_lengths, pairs.target_lengths, self.config.batch_tokens, seed=self.seed, epoch=epoch
        )

    def padding_share(self) -> float:
        """Share of padding in the first epoch's batches."""
        return padding_share(
            self.plain.source_lengths, self.plain.target_lengths, self.epoch_batches(self.plain, epoch=0)
        )

    def train_dataloader(self) -> DataLoader[Batch]:
        """The batches of the trainer's current epoch; those of a resumed epoch that were trained on are left out."""
        epoch = self.trainer.current_epoch if self.trainer is not None else 0
        pairs = self.epoch_pairs(epoch)
        done = self.resumed.steps if epoch == self.resumed.epoch else 0
        sampler = UpdateSampler(self.epoch_batches(pairs, epoch), self.accumulate, start=done)
        return self._loader(pairs, sampler)

    def val_dataloader(self) -> DataLoader[Batch]:
        """Validation batches, sorted by length."""
        batches = token_batches(
            self.valid.source_lengths,
            self.valid.target_lengths,
            # A validation pair is never left out, however long.
            max([self.config.batch_tokens, *self.valid.source_lengths, *self.valid.target_lengths]),
            shuffle=False,
        )
        return DataLoader(self.valid, sampler=batches, batch_size=None, num_workers=0, generator=torch.Generator())

    def _loader(self, pairs: EncodedPairs, sampler: UpdateSampler) -> DataLoader[Batch]:
        return DataLoader(
            pairs,
            batch_sampler=sampler,
            collate_fn=tuple,
            num_workers=self.config.num_workers,
            # A loader draws a seed each time it is iterated: from a generator of its own, or validating more often
            # would change the dropout masks that follow.
            generator=torch.Generator(),
        )

    def _encode(self, text: ParallelText, what: str) -> EncodedPairs:
        source, target = self.tokenizers.source, self.tokenizers.target
        pairs = EncodedPairs(
            source.encode_batch(text.source), target.encode_batch(text.target), source.special, target.special
        )
        log.info("%s text: %d pairs, %d target pieces", what, len(pairs), sum(pairs.target_lengths))
        return pairs

    def _fits(self, pairs: EncodedPairs) -> list[bool]:
        limit = self.config.max_length
        return [max(lengths) <= limit for lengths in zip(pairs.source_lengths, pairs.target_lengths, strict=True)]
