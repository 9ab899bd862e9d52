"""Encoded text and its batches, epoch by epoch."""

import logging
import signal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from pytorch_lightning import LightningDataModule
from pytorch_lightning.loops.progress import _ProcessedTracker
from torch.utils.data import DataLoader, Dataset

from seq2seq.config import DataConfig
from seq2seq.corpus.batching import EncodedPairs, UpdateSampler, padding_share, share, token_batches
from seq2seq.corpus.parallel import ParallelText
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.training.distribution import rank

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
    batches_a_step: int | None = None
    """Of all processes together; None where nobody has noted it."""


class EpochDataModule(LightningDataModule, ABC):
    """Training batches whose order depends on (seed, epoch) alone, and validation batches that never change.

    Each process of a run makes one of these, of the whole text, and is given its share of the batches.

    Args:
        config: Budgets and workers.
        accumulate: Batches an optimiser step and process.
        seed: Of the order.
        num_ranks: Processes that train together.
    """

    def __init__(self, config: DataConfig, accumulate: int, seed: int, num_ranks: int = 1) -> None:
        super().__init__()
        self.config, self.accumulate, self.seed, self.num_ranks = config, accumulate, seed, num_ranks
        self.resumed = Position(epoch=0, steps=0)

    @abstractmethod
    def epoch(self, number: int) -> tuple[Dataset[Any], list[list[int]]]:
        """The data of an epoch, counted from 0, and what of it each batch holds, in order."""

    @abstractmethod
    def validation(self) -> tuple[Dataset[Any], list[list[int]]]:
        """The same of a validation."""

    @abstractmethod
    def padding_share(self) -> float:
        """Share of padding in the first epoch's batches."""

    def use_budget(self, batch_tokens: int) -> None:
        """Have batches of so many tokens from now on."""
        self.config = replace(self.config, batch_tokens=batch_tokens)

    @property
    def batches_a_step(self) -> int:
        """Batches an optimiser step, of all processes together."""
        return self.accumulate * self.num_ranks

    def steps_an_epoch(self) -> int:
        """Optimiser steps of the first epoch."""
        return -(-len(self.epoch(0)[1]) // self.batches_a_step)

    def state_dict(self) -> dict[str, int]:
        """Where in the training text the run is, for the checkpoint."""
        assert self.trainer is not None
        done = self.trainer.fit_loop.epoch_loop.batch_progress.current
        assert isinstance(done, _ProcessedTracker)
        # not `completed`: to a callback that saves at the end of a step, that step is not complete yet
        steps = done.processed
        return {"epoch": self.trainer.current_epoch, "steps": steps, "batches_a_step": self.batches_a_step}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on in the middle of the checkpoint's epoch.

        Raises:
            ValueError: if its steps were of more or fewer batches.
        """
        place = Position(**state_dict)
        before = place.batches_a_step
        if place.steps and before is not None and before != self.batches_a_step:
            raise ValueError(
                f"the checkpoint stands {place.steps} steps of {before} batches into its epoch (trainer.accumulate x "
                f"trainer.devices x trainer.num_nodes), this run's steps have {self.batches_a_step}; choose the three "
                f"so that their product is {before}"
            )
        self.resumed = place

    def train_dataloader(self) -> DataLoader[Any]:
        """The batches of the trainer's current epoch; those of a resumed epoch that were trained on are left out."""
        number = self.trainer.current_epoch if self.trainer is not None else 0
        data, batches = self.epoch(number)
        done = self.resumed.steps if number == self.resumed.epoch else 0
        return DataLoader(
            data,
            batch_sampler=UpdateSampler(batches, self.accumulate, done, rank(), self.num_ranks),
            collate_fn=tuple,
            num_workers=self.config.num_workers,
            worker_init_fn=leave_signals_to_the_run,
            # A loader draws a seed each time it is iterated: from a generator of its own, or validating more often
            # would change the dropout masks that follow.
            generator=torch.Generator(),
        )

    def val_dataloader(self) -> DataLoader[Any]:
        """This process's share of the validation batches; all have equally many, as engines that divide weights ask."""
        data, batches = self.validation()
        own = share(batches, rank(), self.num_ranks)
        return DataLoader(data, sampler=own, batch_size=None, num_workers=0, generator=torch.Generator())


def leave_signals_to_the_run(worker: int) -> None:
    """Have a loader's worker pass over the signals that stop a run: it ends with the process that it works for.

    Ctrl-C reaches the whole group of processes, as do the signals of some schedulers; a worker that they ended would
    end the run with an error, before its checkpoint is written.
    """
    del worker
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):  # Windows has no SIGHUP
            signal.signal(getattr(signal, name), signal.SIG_IGN)


class ParallelDataModule(EpochDataModule):
    """Pairs of similar length in batches.

    Args:
        train: Training pairs.
        valid: Validation pairs.
        tokenizers: Text to ids.
        config: Budgets, limits, sampling.
        accumulate: Batches an optimiser step and process.
        seed: Of the order and of subword sampling.
        num_ranks: Processes that train together.
    """

    def __init__(
        self,
        train: ParallelText,
        valid: ParallelText,
        tokenizers: Tokenizers,
        config: DataConfig,
        accumulate: int = 1,
        seed: int = 1,
        num_ranks: int = 1,
    ) -> None:
        super().__init__(config, accumulate, seed, num_ranks)
        self.tokenizers = tokenizers
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

    def epoch(self, number: int) -> tuple[EncodedPairs, list[list[int]]]:
        """The pairs of an epoch and its batches, in order."""
        pairs = self.epoch_pairs(number)
        return pairs, self.epoch_batches(pairs, number)

    def validation(self) -> tuple[EncodedPairs, list[list[int]]]:
        """The validation pairs, none left out however long, in batches sorted by length."""
        lengths = self.valid.source_lengths, self.valid.target_lengths
        budget = max([self.config.batch_tokens, *lengths[0], *lengths[1]])
        return self.valid, token_batches(*lengths, budget, shuffle=False)

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
