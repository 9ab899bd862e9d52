"""What a run would be, without taking it: its size, its steps, its time and its room, some of it from steps on trial.

Nothing is written, and the text is read and prepared exactly as training would.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from seq2seq.bundle import Bundle
from seq2seq.config import DataKind, TrainConfig
from seq2seq.inspection.cost import Sizes, parameter_parts
from seq2seq.nn.device import evaluation
from seq2seq.nn.host_memory import keep_freed_memory
from seq2seq.training.advice import advise, advise_on_sampling, advise_on_vocabulary
from seq2seq.training.batch_size import with_batch_tokens, worst_update
from seq2seq.training.data_module import ParallelDataModule
from seq2seq.training.devices import check_devices, share_threads
from seq2seq.training.first_weights import fine_tuned, read_first_weights
from seq2seq.training.plan_room import Disk, Memory, disk, memory
from seq2seq.training.preparation import Prepared, prepare
from seq2seq.training.schedule import last_step, learning_rate
from seq2seq.training.text_data_module import TextDataModule
from seq2seq.training.trial import Trial, Update, try_steps
from seq2seq.training.validation import ValidationBleu
from seq2seq.translator import Translator

WARM, TIMED = 3, 5
"""Steps that come first, in which memory is found and caches fill, and steps that are timed."""
DECODED = (16, 64, 256)
"""Validation lines that are translated to see how long it takes: many at a time are faster than few."""
ENOUGH = 1.0
"""Seconds after which no more of them are translated."""
POINTS = 240
"""Places at which the learning rate is told."""

Progress = Callable[[str, float], None]
"""Is told what goes on, and how much of everything is done."""


@dataclass(frozen=True)
class Text:
    """Training text and its steps."""

    size: str
    """Pairs, or blocks, and what they hold."""
    target_tokens: int
    """Of an epoch: pieces that are predicted."""
    tokens_an_update: float
    """Mean target pieces of an optimiser step, over all batches and devices of it."""
    batches_an_update: int
    """Batches of a step: accumulated ones times devices."""
    steps_an_epoch: int
    padding_share: float


@dataclass(frozen=True)
class Length:
    """When the run ends."""

    steps: int
    epochs: float
    by: str
    """The limit that ends it: max_steps, max_epochs or max_minutes."""
    validations: int


@dataclass(frozen=True)
class Speed:
    """What was measured."""

    step_seconds: float
    """Mean of the steps timed."""
    target_tokens_per_second: float
    """Of all devices together, as if each were as fast as the one measured."""
    timed_steps: int
    validation_seconds: float
    training_seconds: float
    """Of the whole run, validations included."""
    validation_share: float
    device: str
    threads: int


@dataclass(frozen=True)
class Plan:
    """All that is known of a run before it begins."""

    name: str
    parameters: int
    """Tied ones once."""
    trained: int
    """Those that are not frozen."""
    parts: dict[str, int]
    """Parameters by part of the network."""
    memory: Memory
    text: Text
    rates: list[tuple[int, float]]
    """Steps and their learning rates."""
    length: Length
    speed: Speed
    disk: Disk
    batch_tokens: int
    warnings: list[str]
    """What was said while the text was prepared, and what the options will probably lead to."""


def make_plan(config: TrainConfig, folder: Path, progress: Progress | None = None) -> Plan:
    """What the run that the options describe would be.

    Args:
        config: Every option.
        folder: Where the run would be written.
        progress: Is told how far it is.

    Raises:
        FileNotFoundError: if a file of text, a tokenizer or a bundle is missing.
        ValueError: if text, options and devices do not fit together.
        RuntimeError: if the steps on trial run out of memory.
    """
    tell = progress or (lambda what, share: None)
    check_devices(config.trainer)
    share_threads(config.trainer)
    with _warnings() as said:
        tell("reading the text", 0.0)
        first = read_first_weights(config)
        if first is not None:
            config = fine_tuned(config, first)
        run = prepare(config, folder, first)
        tell("looking for the size of a batch", 0.15)
        config = with_batch_tokens(replace(config, resume=None), run.data, run.module)
        text = _text(config, run)
        run.module.total_steps = last_step(config, text.steps_an_epoch)
        advise(config, text.steps_an_epoch)
        advise_on_vocabulary(config, run.tokenizers, run.data)
    keep_freed_memory()  # as training does
    trial = _timed(config, run, lambda done: tell("taking steps", 0.25 + 0.45 * done))
    tell("taking a step with the longest rows", 0.7)
    largest = worst_update(run.data, config.data.batch_tokens)
    worst = try_steps(config.trainer, run.module, [largest] * 2)
    tell("validating a part", 0.85)
    validation = _validation_seconds(config, run)
    length, speed = _length_and_speed(config, text, trial, validation)
    if length.by == "max_minutes":  # how many steps that is was not known before
        with _warnings() as late:
            advise_on_sampling(config.scheduled_sampling, length.steps)
        said += late
    parameters = run.model.num_parameters()
    tell("done", 1.0)
    return Plan(
        name=config.name,
        parameters=parameters,
        trained=sum(weight.numel() for weight in run.model.parameters() if weight.requires_grad),
        parts=_parts(config, run),
        memory=memory(config, run.module, run.model, largest, worst),
        text=text,
        rates=_rates(config, length.steps, run.module.total_steps),
        length=length,
        speed=speed,
        disk=disk(config, run, trial.optimizer_bytes, folder),
        batch_tokens=config.data.batch_tokens,
        warnings=said,
    )


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """The warnings that this package logs meanwhile."""
    said: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler, logger = Keep(logging.WARNING), logging.getLogger("seq2seq")
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)


def _parts(config: TrainConfig, run: Prepared) -> dict[str, int]:
    """Parameters by part of the network, by the formulas of `seq2seq inspect cost`."""
    return {
        part.name: part.total
        for part in parameter_parts(Sizes(config.model, run.model.source_rows, len(run.model.output), source=1))
    }


def _text(config: TrainConfig, run: Prepared) -> Text:
    data, (_, batches), tokens = run.data, run.data.epoch(0), _tokens(run)
    if isinstance(data, TextDataModule):
        size = f"{sum(map(len, batches)):,} blocks of up to {config.data.block_length:,} pieces"
    else:
        assert isinstance(data, ParallelDataModule)
        size = f"{len(data.plain):,} pairs, {sum(data.plain.source_lengths):,} source pieces"
    at_once = config.trainer.accumulate * config.trainer.devices * config.trainer.num_nodes
    steps = -(-len(batches) // at_once)
    return Text(size, tokens, tokens / steps, at_once, steps, data.padding_share())


def _timed(config: TrainConfig, run: Prepared, progress: Callable[[float], None]) -> Trial:
    """Steps of the first epoch; those of one device, as many batches each as it accumulates."""
    data, batches = run.data.epoch(0)
    accumulate, number, done = config.trainer.accumulate, WARM + TIMED, 0
    indices = [batches[i % len(batches)] for i in range(number * accumulate)]
    updates: list[Update] = [
        tuple(data[batch] for batch in indices[i * accumulate : (i + 1) * accumulate]) for i in range(number)
    ]

    def count() -> None:
        nonlocal done
        done += 1
        progress(done / number)

    trial = try_steps(config.trainer, run.module, updates, count)
    tokens = [sum(batch.num_target_tokens for batch in update) for update in updates]
    # the steps of a trial may be larger or smaller than the mean of the epoch
    mean = _tokens(run) / len(batches) * accumulate
    scale = mean * TIMED / sum(tokens[WARM:])
    return replace(trial, seconds=tuple(seconds * scale for seconds in trial.seconds))


def _tokens(run: Prepared) -> int:
    """Target pieces of an epoch."""
    data = run.data
    if isinstance(data, TextDataModule):
        return data.train_text.num_predicted
    assert isinstance(data, ParallelDataModule)
    return sum(data.plain.target_lengths)


def _validation_seconds(config: TrainConfig, run: Prepared) -> float:
    """Seconds of a validation: the loss of some batches and the translation of some lines, taken for all of them.

    A model that has learned nothing does not end its translations, so they are given about the length of their source,
    as those of a trained one have.
    """
    data, batches = run.data.validation()
    some = batches[:: max(1, len(batches) // 3)][:3]
    with evaluation(run.module):
        began = time.perf_counter()
        for batch in some:
            run.module.validation_loss(data[batch])
        seconds = (time.perf_counter() - began) * sum(map(len, batches)) / sum(map(len, some))
    if config.data.kind is DataKind.text:
        return seconds
    return seconds + _decoding_seconds(config, run)


def _decoding_seconds(config: TrainConfig, run: Prepared) -> float:
    """Seconds in which the validation lines are translated: more and more of them, until it has taken a while."""
    assert isinstance(run.validation, ValidationBleu)
    lines = run.validation.text.source
    short = replace(config.decode, max_length_factor=1.0, min_length_factor=1.0, max_length_offset=1)
    bundle = Bundle(run.model, config.model, run.tokenizers.source, run.tokenizers.target, short)
    translator = Translator(bundle, details=False)
    for number in DECODED:
        some = lines[:: max(1, len(lines) // number)][:number]
        began = time.perf_counter()
        with torch.random.fork_rng(devices=[]):
            translator.translate(some, short)
        seconds = time.perf_counter() - began
        if seconds > ENOUGH:
            break
    return seconds * len(lines) / max(1, len(some))


def _length_and_speed(config: TrainConfig, text: Text, trial: Trial, validation: float) -> tuple[Length, Speed]:
    """When the run ends, and how long that takes."""
    trainer = config.trainer
    timed = trial.seconds[WARM:]
    step = sum(timed) / len(timed)
    every = trainer.validate_every or text.steps_an_epoch
    limits: dict[str, int] = {}
    if trainer.max_steps:
        limits["max_steps"] = trainer.max_steps
    if trainer.max_epochs:
        limits["max_epochs"] = trainer.max_epochs * text.steps_an_epoch
    if trainer.max_minutes:
        limits["max_minutes"] = _steps_within(60 * trainer.max_minutes, step, validation, every)
    by = min(limits, key=lambda name: limits[name])
    steps = limits[by]
    validations = math.ceil(steps / every)
    seconds = steps * step + validations * validation
    return (
        Length(steps, steps / text.steps_an_epoch, by, validations),
        Speed(
            step,
            text.tokens_an_update / step,
            len(timed),
            validation,
            seconds,
            validations * validation / seconds,
            trial.device,
            torch.get_num_threads(),
        ),
    )


def _steps_within(seconds: float, step: float, validation: float, every: int) -> int:
    """Steps that are taken before the time is over; the last validation comes after that."""
    cycle = every * step + validation
    whole = int(seconds / cycle)
    return max(1, whole * every + min(every, round((seconds - whole * cycle) / step)))


def _rates(config: TrainConfig, steps: int, total_steps: int | None) -> list[tuple[int, float]]:
    """The learning rate at places spread over the run, its first and last step and its peak among them."""
    number = min(POINTS, steps)
    places = {1 + round(i * (steps - 1) / max(1, number - 1)) for i in range(number)}
    places |= {step for step in (config.optim.warmup_steps,) if step <= steps}
    return [(step, learning_rate(step, config.optim, config.model.d_model, total_steps)) for step in sorted(places)]
