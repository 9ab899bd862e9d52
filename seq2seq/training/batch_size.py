"""`trainer.batch_tokens=auto`: the largest batch that fits into memory, found by taking steps with it."""

import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seq2seq.config import BatchTokens, Strategy, TrainConfig, TrainerConfig
from seq2seq.corpus.batching import EncodedPairs
from seq2seq.nn.device import find_device
from seq2seq.training.data_module import EpochDataModule, ParallelDataModule
from seq2seq.training.distribution import gather_over_ranks, num_ranks
from seq2seq.training.memory_use import GB, give_back, memory_for_us
from seq2seq.training.module import TrainingModule
from seq2seq.training.options_file import read_options
from seq2seq.training.text_data_module import TextDataModule
from seq2seq.training.trial import Update, num_bytes, try_steps

log = logging.getLogger(__name__)

LEAST_STEPS = 100
"""Optimiser steps that an epoch keeps: with fewer, a small text is seen over and over between two of them."""
MOST_ON_CPU = 8192
"""On a CPU larger batches take more memory and are not faster: its cores are busy with far smaller ones."""
SPARE = {"cuda": 0.08, "cpu": 0.2}
"""Share of the memory that is left alone: for validation, and for what others start meanwhile."""
UNIT = 64
"""Budgets are multiples of this."""
GROWTH = 4
"""No size is tried that is more than so many times the largest known to fit."""
NEAR = 1.05
"""The search ends when what is known to fit and what is known not to are as near as this."""


@dataclass(frozen=True)
class Bounds:
    """Sizes that the search stays between, in tokens of a batch."""

    low: int
    """A batch holds one pair of the longest kind, or one block."""
    high: int
    """More is not wanted, whatever fits."""
    unit: int
    """Sizes are multiples of this."""
    why: str
    """What `high` comes from."""


def with_batch_tokens(config: TrainConfig, data: EpochDataModule, module: TrainingModule) -> TrainConfig:
    """The options with the size of a batch that was found, which `data` uses from then on.

    Without `trainer.batch_tokens=auto` nothing is done. A run that is resumed goes on with the size it began with.
    Weights and random numbers stay as they are, so the run is the one that the same size, given, would make. All ranks
    must call it; they get the same size, the least that was found by any.

    Args:
        config: Every option.
        data: The training text.
        module: Network, loss and optimiser.

    Raises:
        ValueError: if not even the smallest batch fits, or memory cannot be measured here.
    """
    if config.trainer.batch_tokens is BatchTokens.given:
        return config
    if config.resume is not None:
        tokens, reason = _of_the_run(Path(config.resume)), "as the run that is resumed began"
    else:
        tokens, reason = min(gather_over_ranks(_search(config, data, module)))
    log.info("data.batch_tokens=%d: %s (trainer.batch_tokens=auto)", tokens, reason)
    data.use_budget(tokens)
    return replace(config, data=replace(config.data, batch_tokens=tokens))


def _of_the_run(checkpoint: Path) -> int:
    """The size of a batch in the options of the run that a checkpoint is of."""
    file = checkpoint.absolute().parent.parent / "config.yaml"
    if not file.is_file():
        raise ValueError(
            f"trainer.batch_tokens=auto goes on with the size of a batch that the run began with, but {file} does not "
            "exist; give trainer.batch_tokens=given and data.batch_tokens"
        )
    return read_options(file.parent).data.batch_tokens


def _search(config: TrainConfig, data: EpochDataModule, module: TrainingModule) -> tuple[int, str]:
    """The largest size that this process has room for, and why it is that."""
    trainer = config.trainer
    if trainer.strategy is Strategy.fsdp:
        raise ValueError(
            "trainer.batch_tokens=auto tries a whole model on one device, which trainer.strategy=fsdp divides; give "
            "trainer.batch_tokens=given and data.batch_tokens"
        )
    device = find_device({"auto": "auto", "cpu": "cpu", "gpu": "auto", "mps": "mps"}[trainer.accelerator.name])
    if device.type not in SPARE or (device.type == "cpu" and not Path("/proc/self/clear_refs").exists()):
        raise ValueError(
            f"trainer.batch_tokens=auto measures memory on CUDA, and on the CPU of Linux, but this is {device.type} "
            "without such a measure; give trainer.batch_tokens=given and data.batch_tokens"
        )
    on_cpu = device.type == "cpu"
    bounds = find_bounds(data, trainer, on_cpu=on_cpu)
    # processes of one machine share its RAM, while GPUs have theirs
    mine = memory_for_us(device) // (num_ranks() // trainer.num_nodes if on_cpu else 1)
    allowed = int(min(gather_over_ranks(mine)) * (1 - SPARE[device.type]))
    buckets = num_bytes(module) if num_ranks() > 1 else 0  # a copy of the gradients, from which they are sent

    def peak(tokens: int) -> int | None:
        used = _peak(trainer, module, worst_update(data, tokens))
        if used is not None:
            log.info("  trying data.batch_tokens=%d: %.2f GB of %.2f GB", tokens, used / GB, allowed / GB)
            return used + buckets
        log.info("  trying data.batch_tokens=%d: out of memory", tokens)
        return None

    log.info("looking for the largest batch that fits (trainer.batch_tokens=auto)")
    found = largest_that_fits(peak, bounds, allowed)
    if found is None:
        raise ValueError(
            f"not even one pair or block fits: a batch of {bounds.low} tokens takes more than the "
            f"{allowed / GB:.2f} GB that may be used; lower data.max_length or data.block_length, choose a smaller "
            "model, or trainer.activation_checkpointing=true"
        )
    reason = bounds.why if found == bounds.high else f"more would not fit into {allowed / GB:.2f} GB"
    return found, reason


def find_bounds(data: EpochDataModule, trainer: TrainerConfig, *, on_cpu: bool) -> Bounds:
    """Between what sizes the search stays.

    Args:
        data: The training text.
        trainer: Batches a step, devices.
        on_cpu: Whether training is on one.
    """
    if isinstance(data, TextDataModule):
        unit, pieces = data.config.block_length, data.train_text.num_predicted
        low = unit
    else:
        assert isinstance(data, ParallelDataModule)
        unit, low = UNIT, -(-data.config.max_length // UNIT) * UNIT
        lengths = zip(data.plain.source_lengths, data.plain.target_lengths, strict=True)
        pieces = sum(max(pair) for pair in lengths)
    at_once = trainer.accumulate * trainer.devices * trainer.num_nodes
    high, why = pieces // (LEAST_STEPS * at_once), f"with more, an epoch would have fewer than {LEAST_STEPS} steps"
    if on_cpu and high > MOST_ON_CPU:
        high, why = MOST_ON_CPU, "on a CPU more is not faster"
    return Bounds(low, max(low, high // unit * unit), unit, why)


def worst_update(data: EpochDataModule, tokens: int) -> Update:
    """The batches of a step that takes at least the memory that any step of the run could take.

    A budget holds no more positions of either side than it says, and attention grows with the longest row: so all rows
    are as long as the longest, on both sides.

    Args:
        data: The training text.
        tokens: Budget of a batch.
    """
    batch: Any
    if isinstance(data, TextDataModule):
        packed, _ = data.epoch(0)
        order = sorted(range(len(packed)), key=lambda i: (len(packed.blocks[i]) > 1, len(packed.blocks[i])))[::-1]
        batch = packed[[order[i % len(order)] for i in range(tokens // data.config.block_length)]]
    else:
        assert isinstance(data, ParallelDataModule)
        plain = data.plain
        longest = max(*plain.source_lengths, *plain.target_lengths)
        if data.samples:  # another segmentation of a line may be longer than the plain one
            longest = data.config.max_length
        row = max((*plain.sources, *plain.targets), key=len) or [plain.source_special.unk]
        ids = [row[i % len(row)] for i in range(longest - 1)]
        source, target = (
            [min(i, tokenizer.vocab_size - 1) for i in ids]
            for tokenizer in (data.tokenizers.source, data.tokenizers.target)
        )
        batch = EncodedPairs([source], [target], plain.source_special, plain.target_special)[
            [0] * -(-tokens // longest)
        ]
    return (batch,) * min(data.accumulate, 2)  # with a second batch the gradients of the first are there


def _peak(trainer: TrainerConfig, module: TrainingModule, update: Update) -> int | None:
    """The most memory of two steps, the first of which makes the optimiser's state; None if there is not enough."""
    gc.collect()
    give_back()
    try:
        return try_steps(trainer, module, [update] * 2).peak_bytes
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or "memory" in str(error)):
            raise
    finally:
        gc.collect()
        give_back()
    return None


def largest_that_fits(peak: Callable[[int], int | None], bounds: Bounds, allowed: int) -> int | None:
    """The largest size whose peak is within what is allowed, nearly; None if the smallest is not.

    What is tried next is where a straight line through the two largest sizes that fit meets the limit, so memory is
    not exceeded to find out where its end is; should that not fit either, the middle between the two is tried.

    Args:
        peak: Bytes at a size; None where it is out of memory.
        bounds: Least and largest size.
        allowed: Bytes.
    """
    fits: list[tuple[int, int]] = []
    ceiling: int | None = None
    size = bounds.low
    while True:
        used = peak(size)
        if used is not None and used <= allowed:
            fits.append((size, used))
        else:
            ceiling = size
        if not fits:
            return None
        best = fits[-1][0]
        if best == bounds.high or (ceiling is not None and ceiling <= max(NEAR * best, best + bounds.unit)):
            return best
        size = _next(fits, ceiling, allowed) // bounds.unit * bounds.unit
        size = min(bounds.high, max(size, best + bounds.unit))
        if ceiling is None and len(fits) > 1 and size < bounds.high and size <= NEAR * best:
            return best


def _next(fits: list[tuple[int, int]], ceiling: int | None, allowed: int) -> int:
    """The size to try after these."""
    best, used = fits[-1]
    if ceiling is not None:
        return (best + ceiling) // 2
    if len(fits) == 1:
        return 2 * best
    before, used_before = fits[-2]
    slope = (used - used_before) / (best - before)
    return min(GROWTH * best, best + int((allowed - used) / slope)) if slope > 0 else 2 * best
