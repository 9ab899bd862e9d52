"""`seq2seq train --plan`: what a run would be, printed on stdout, without training and without writing anything."""

import dataclasses
import json
import logging
import sys
import textwrap
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.cli import UsageError
from seq2seq.cli.options import check_overrides
from seq2seq.config import TrainConfig

if TYPE_CHECKING:
    from rich.console import Console

    from seq2seq.training.plan import Plan, Progress

WIDTH = 64
"""Columns of the picture of the learning rate, where there is room."""
HEIGHT = 6
"""Lines of it."""
_LABEL = 16
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_MB = 1e6

Row = tuple[str, str]
"""A name, and what is said of it; without a name it goes on with the row above."""


def plan(arguments: Sequence[str]) -> None:
    """Print the plan of the run that Hydra's arguments describe.

    Args:
        arguments: What is typed after `seq2seq train`, with `--plan` in it, and `--json` if wanted.

    Raises:
        UsageError: for a misspelt name, a value of the wrong type, or a sweep.
        ValueError: for options that do not fit together, or data that cannot be trained on.
        OSError: for a file that cannot be read.
    """
    from hydra._internal.utils import get_args_parser

    from seq2seq.cli.train import run

    rest = [argument for argument in arguments if argument not in ("--plan", "--json")]
    parsed = get_args_parser().parse_intermixed_args(rest)
    if parsed.help or parsed.hydra_help or parsed.cfg or parsed.info:
        run(rest)
        return
    if parsed.multirun:
        raise UsageError("--plan is for one run; leave --multirun out")
    config, folder = composed(parsed)
    from seq2seq.training.plan import make_plan

    with _messages_on_stderr() as tell:
        found = make_plan(config, folder, tell)
    if "--json" in arguments:
        print(json.dumps(as_json(found), ensure_ascii=False, indent=2))
        return
    show(found, config)


def composed(parsed: Namespace) -> tuple[TrainConfig, Path]:
    """The checked options of Hydra's arguments, and where the run would be written; Hydra itself writes nothing.

    Raises:
        UsageError: for a misspelt name, or a value of the wrong type.
        ValueError: for options that do not fit together.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import open_dict

    from seq2seq.cli.train import compose, conf_dir, exceptions_from_hydra, own_folders, register

    own = own_folders(parsed)
    check_overrides(parsed.overrides, [conf_dir(), *own])
    register()
    paths = ", ".join("'file://" + str(folder.absolute()).replace("'", "\\'") + "'" for folder in own)
    search = [f"hydra.searchpath=[{paths}]"] if own else []
    with (
        exceptions_from_hydra(),
        initialize_config_dir(version_base="1.3", config_dir=str(conf_dir()), job_name="train"),
    ):
        name = parsed.config_name or "train"
        cfg = hydra_compose(name, overrides=[*parsed.overrides, *search], return_hydra_config=True)
        folder = Path(cfg.hydra.run.dir)
        with open_dict(cfg):
            cfg.hydra.runtime.output_dir = str(folder.absolute())
            HydraConfig.instance().set_config(cfg)
            del cfg["hydra"]
        return compose(cfg), folder


@contextmanager
def _messages_on_stderr() -> Iterator["Progress"]:
    """Send messages to stderr, with a bar below them on a terminal; gives what moves the bar."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("plan", total=1.0)
        handler = logging.StreamHandler(sys.stderr)  # while the bar is there it prints above it
        root, level = logging.getLogger(), logging.getLogger().level
        root.addHandler(handler)
        root.setLevel(logging.INFO)
        lightning = logging.getLogger("pytorch_lightning")
        lightning.setLevel(logging.WARNING)
        try:
            yield lambda what, share: bar.update(task, description=what, completed=share)
        finally:
            root.removeHandler(handler)
            root.setLevel(level)


def as_json(found: "Plan") -> dict[str, Any]:
    """All numbers as plain builtins, and the sums that the printed plan has."""
    values = dataclasses.asdict(found)
    values["memory"]["together"] = found.memory.together
    values["disk"]["together"] = found.disk.together
    return values


def show(found: "Plan", config: TrainConfig) -> None:
    """Print the plan for reading, to the width of the terminal; without colours where stdout is no terminal."""
    from rich.console import Console

    console = Console(highlight=False, emoji=False)
    console.print(f"Plan of {found.name}: nothing is trained, nothing is written", style="bold", markup=False)
    _section(console, "run", _run_rows(found, config))
    _section(console, "text", _text_rows(found))
    _section(console, "time", _time_rows(found, config))
    _section(console, "learning rate", [])
    for line in rate_picture(found.rates, min(WIDTH, console.width - 12)):
        _line(console, line)
    total = found.parameters
    parts = [(name, f"{value:,}", f"{value / total:.1%}") for name, value in found.parts.items() if value]
    _numbers(console, "parameters, tied ones once", [*parts, ("together", f"{total:,}", "")])
    _numbers(console, "memory of the largest batch, MB", _memory_rows(found))
    _numbers(console, "disk, MB", _disk_rows(found))
    for warning in found.warnings + _own_warnings(found, config):
        console.print()
        _hanging(console, "warning", warning, "yellow")


def _section(console: "Console", title: str, rows: Sequence[Row]) -> None:
    console.print()
    console.print(title, style="bold", markup=False)
    for name, text in rows:
        _hanging(console, f"  {name}", text)


def _hanging(console: "Console", name: str, text: str, style: str = "") -> None:
    """A name and its text, which is wrapped beside it and not below it."""
    lines = textwrap.wrap(text, max(20, console.width - _LABEL), break_long_words=False, break_on_hyphens=False)
    _line(console, f"{name:<{_LABEL - 1}} {lines[0]}", style)
    for line in lines[1:]:
        _line(console, " " * _LABEL + line, style)


def _numbers(console: "Console", title: str, rows: Sequence[tuple[str, str, str]]) -> None:
    """Names with right-justified numbers and a remark, which is wrapped."""
    console.print()
    console.print(title, style="bold", markup=False)
    names, numbers = (max(len(row[place]) for row in rows) for place in (0, 1))
    start = names + numbers + 6
    for name, number, remark in rows:
        lines = textwrap.wrap(remark, max(20, console.width - start)) or [""]
        _line(console, f"  {name:<{names}}  {number:>{numbers}}  {lines[0]}")
        for line in lines[1:]:
            _line(console, " " * start + line)


def _line(console: "Console", text: str, style: str = "") -> None:
    console.print(text.rstrip(), style=style, markup=False, no_wrap=True, overflow="ignore", crop=False)


def _run_rows(found: "Plan", config: TrainConfig) -> list[Row]:
    frozen = f", {found.trained:,} of them trained" if found.trained < found.parameters else ""
    speed, trainer = found.speed, config.trainer
    where = f"{speed.device}, {speed.threads} thread{'s' if speed.threads > 1 else ''}"
    devices = trainer.devices * trainer.num_nodes
    several = f", {devices} devices" if devices > 1 else ""
    optim = config.optim
    return [
        ("network", f"{config.model.architecture.name}, {found.parameters:,} parameters{frozen}"),
        ("device", f"{where if speed.device == 'cpu' else speed.device}, {trainer.precision.name}{several}"),
        ("optimiser", f"{optim.optimizer.name}, schedule {optim.schedule.name}"),
        ("folder", found.disk.folder),
    ]


def _text_rows(found: "Plan") -> list[Row]:
    text = found.text
    batches = "1 batch" if text.batches_an_update == 1 else f"{text.batches_an_update} batches"
    return [
        ("training text", f"{text.size}, {text.target_tokens:,} target pieces"),
        (
            "an update",
            f"{text.tokens_an_update:,.0f} target pieces on average, {batches} of at most {found.batch_tokens:,} "
            "pieces a side",
        ),
        ("padding", f"{text.padding_share:.1%}"),
        ("an epoch", f"{text.steps_an_epoch:,} steps"),
    ]


def _time_rows(found: "Plan", config: TrainConfig) -> list[Row]:
    speed, length, trainer = found.speed, found.length, config.trainer
    devices = trainer.devices * trainer.num_nodes
    with_all = f", if all {devices} devices are as fast as one alone" if devices > 1 else ""
    every = f"{trainer.validate_every:,} steps" if trainer.validate_every else "epoch"
    earlier = ""
    if trainer.patience is not None:
        earlier = f"; earlier when {trainer.patience} validations in a row bring nothing (trainer.patience)"
    return [
        (
            "a step",
            f"{duration(speed.step_seconds)}, {speed.target_tokens_per_second:,.0f} target pieces/s{with_all}: "
            f"measured on this machine just now, the mean of {speed.timed_steps} steps",
        ),
        (
            "a validation",
            f"about {duration(speed.validation_seconds)}, estimated from a part; every {every}, {length.validations:,} "
            f"in all, {speed.validation_share:.0%} of the time",
        ),
        (
            "the run",
            f"{length.steps:,} steps, {length.epochs:.3g} epochs, about {duration(speed.training_seconds)}; "
            f"trainer.{length.by}={getattr(trainer, length.by)} ends it{earlier}",
        ),
    ]


def duration(seconds: float) -> str:
    """Seconds in words that a person reads at a glance."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"


def rate_picture(rates: Sequence[tuple[int, float]], width: int) -> list[str]:
    """The learning rate over the steps, drawn with blocks.

    Args:
        rates: Steps, in order, and their rates.
        width: Columns of the drawing; the labels take ten more.
    """
    first, last = rates[0][0], rates[-1][0]
    highest = max(rate for _, rate in rates)
    peak = next(step for step, rate in rates if rate == highest)
    width = min(width, last - first + 1)
    scale = (last - first) / max(1, width - 1)
    columns = [min(rates, key=lambda pair: abs(pair[0] - first - scale * column))[1] for column in range(width)]
    columns[round((peak - first) / max(1.0, scale))] = highest  # which may lie between two columns
    lines = []
    for line in range(HEIGHT):
        below = HEIGHT - 1 - line
        filled = [min(8, max(0, round(8 * (HEIGHT * rate / highest - below)))) for rate in columns]
        label = f"{highest:.2e}" if line == 0 else "0" if line == HEIGHT - 1 else ""
        lines.append(f"{label:>9} │" + "".join(_EIGHTHS[eighths] for eighths in filled).rstrip())
    ends = f"step {first:,}", f"{last:,}"
    room = max(1, width - len(ends[0]) - len(ends[1]))
    said = f"highest at step {peak:,}, {rates[-1][1]:.2e} at the end"
    middle = f"{said:^{room}}" if room > len(said) + 2 else " " * room
    lines += [f"{'':>9} └{'─' * width}", f"{'':>11}{ends[0]}{middle}{ends[1]}"]
    return lines if middle.strip() else [*lines, f"{'':>11}{said}"]


def _memory_rows(found: "Plan") -> list[tuple[str, str, str]]:
    memory = found.memory
    rows = [(name, megabytes(value), "") for name, value in memory.parts.items()]
    shape = f"an estimate, for {memory.rows} rows of {memory.length} pieces"
    rows.append(("together", megabytes(memory.together), shape))
    if memory.measured is not None:
        what = "of the process, with torch and the text" if found.speed.device == "cpu" else "of torch's allocator"
        rows.append(("measured", megabytes(memory.measured), f"the peak {what}, in two steps with that batch"))
    return rows


def _disk_rows(found: "Plan") -> list[tuple[str, str, str]]:
    disk = found.disk
    kept = {
        "best checkpoints": (disk.best, "weights (trainer.keep_best)"),
        "recent ones": (disk.recent, "weights, to be averaged (trainer.average_last)"),
        "last, and before": (disk.last, "weights and the optimiser's state, to go on from"),
    }
    rows = [
        (name, megabytes(number * size), f"{number} of {megabytes(size)} MB: {what}")
        for name, ((number, size), what) in kept.items()
    ]
    rows += [
        ("bundle", megabytes(disk.bundle), ""),
        ("while writing", megabytes(disk.scratch), "a new checkpoint stands beside the old one"),
        ("together", megabytes(disk.together), ""),
        ("free", megabytes(disk.free), ""),
    ]
    return rows


def megabytes(number: int) -> str:
    """Bytes as megabytes of 10^6, small ones with a decimal."""
    return f"{number / _MB:,.1f}" if number < 10 * _MB else f"{number / _MB:,.0f}"


def _own_warnings(found: "Plan", config: TrainConfig) -> list[str]:
    """What the plan itself shows to be wrong."""
    disk, length, warmup = found.disk, found.length, config.optim.warmup_steps
    warnings = []
    if length.by == "max_minutes" and length.steps < 2 * warmup:
        warnings.append(
            f"at this speed trainer.max_minutes={config.trainer.max_minutes} is enough for {length.steps:,} steps, of "
            f"which optim.warmup_steps={warmup:,} are warm-up; choose a shorter one, more minutes or a smaller model"
        )
    if disk.together > disk.free:
        warnings.append(
            f"the run needs up to {megabytes(disk.together)} MB, and {megabytes(disk.free)} MB are free where "
            f"{disk.folder} would be; choose another hydra.run.dir, or a smaller trainer.keep_best and "
            "trainer.average_last"
        )
    return warnings
