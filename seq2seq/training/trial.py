"""Optimiser steps taken on trial: with the engine that the run would have, on a copy of its network.

Nothing is written and nothing is changed: weights, random numbers and counts are what they were.
"""

import copy
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, Dataset

from seq2seq.config import Accelerator, MixingSchedule, TrainerConfig
from seq2seq.shapes import Tensor
from seq2seq.training.distribution import alone
from seq2seq.training.memory_use import forget_peak, peak_bytes
from seq2seq.training.module import TrainingModule
from seq2seq.training.quiet import quiet_lightning
from seq2seq.training.random_state import random_state, restore_random_state
from seq2seq.training.strategy import LIGHTNING_PRECISION, half_weights

Update = tuple[Any, ...]
"""The batches of one optimiser step."""


@dataclass(frozen=True)
class Trial:
    """What some steps took."""

    seconds: tuple[float, ...]
    """Of each step."""
    peak_bytes: int | None
    """The most memory that the process, or on CUDA torch's allocator, had; None where it cannot be measured."""
    optimizer_bytes: int
    """Of the optimiser's state."""
    device: str
    """Where it was: cpu, cuda, mps."""


def try_steps(
    config: TrainerConfig,
    module: TrainingModule,
    updates: Sequence[Update],
    after_step: Callable[[], None] | None = None,
) -> Trial:
    """Take the steps on one device of this process, with as much scheduled sampling as the run will have in the end.

    Args:
        config: Device and precision.
        module: Network, loss and optimiser; a copy of it is trained.
        updates: The batches of each step.
        after_step: Is called after each.

    Raises:
        RuntimeError: if there is not enough memory: `torch.OutOfMemoryError`, on CPUs one of torch's own words.
    """
    with alone(), _random_numbers_kept(), quiet_lightning():
        copied = copy.deepcopy(module)
        if module.sampling.rate > 0:  # which has not begun yet in the first steps of a run
            copied.sampling = replace(module.sampling, schedule=MixingSchedule.constant, start_step=0)
        watch = _Watch(after_step)
        trainer = Trainer(
            logger=False,
            callbacks=[watch],
            max_epochs=1,
            limit_val_batches=0,
            accelerator=config.accelerator.name,
            devices=_one_device(config),
            plugins=[*half_weights(config)],
            precision=LIGHTNING_PRECISION.get(config.precision),
            use_distributed_sampler=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        steps = cast(Dataset[Update], list(updates))  # a loader takes any sequence
        loader = DataLoader(steps, batch_size=None, collate_fn=_as_it_is, generator=torch.Generator())
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="You defined a `validation_step` but have no")
            trainer.fit(copied, train_dataloaders=loader)
    peak = watch.peak
    if peak is not None and watch.device == "cpu":
        peak -= num_bytes(copied)  # which the run itself does without
    return Trial(tuple(watch.seconds), peak, watch.optimizer_bytes, watch.device)


def num_bytes(module: nn.Module) -> int:
    """Bytes of a network's weights, tied ones once."""
    return sum(weight.numel() * weight.element_size() for weight in module.parameters())


def _as_it_is(update: Any) -> Any:
    return update


def _one_device(config: TrainerConfig) -> int | list[int]:
    """The device of this process, for Lightning: on CUDA it may be another than the first."""
    cuda = torch.cuda.is_available() and config.accelerator in (Accelerator.auto, Accelerator.gpu)
    return [torch.cuda.current_device()] if cuda else 1


@contextmanager
def _random_numbers_kept() -> Iterator[None]:
    """Have all generators stand afterwards where they stood before."""
    if torch.cuda.is_available():
        torch.cuda.init()  # type: ignore[no-untyped-call]  # or the state of its generators would not be among those kept
    state = random_state()
    try:
        yield
    finally:
        restore_random_state(state)


class _Watch(Callback):
    """Takes the time of each step, and looks at the memory."""

    def __init__(self, after_step: Callable[[], None] | None) -> None:
        self.after_step = after_step
        self.seconds: list[float] = []
        self.began = 0.0
        self.peak: int | None = None
        self.measures = False
        self.optimizer_bytes = 0
        self.device = ""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin with the peak."""
        self.device = pl_module.device.type
        self.measures = forget_peak(pl_module.device)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Begin with the time."""
        _wait(pl_module.device)
        self.began = time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Take the time, and tell."""
        _wait(pl_module.device)
        self.seconds.append(time.perf_counter() - self.began)
        if self.after_step is not None:
            self.after_step()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at what there was, while it is there."""
        self.peak = peak_bytes(pl_module.device) if self.measures else None
        states = [state for optimizer in trainer.optimizers for state in optimizer.state.values()]
        tensors = [value for state in states for value in state.values() if isinstance(value, Tensor)]
        self.optimizer_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _wait(device: torch.device) -> None:
    """Have the device finish what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
