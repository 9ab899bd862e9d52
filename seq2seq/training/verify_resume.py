"""Whether a run that is stopped and resumed is the run that was never stopped, bit for bit."""

import csv
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from seq2seq.config import StopKind
from seq2seq.shapes import Tensor
from seq2seq.training.averaging import RUN_FILES, read_checkpoint
from seq2seq.training.checkpoint_io import LAST
from seq2seq.training.step_record import FIELDS, digest, read_record

RECORD = "steps"
"""Name of a run's file of steps, without its endings."""

STEP_RECORD = "seq2seq.training.step_record.StepRecord"
"""What a run's options call `StepRecord` by."""

_OF_TIME = ("second", "minute", "memory")
"""Metrics whose names have one of these words are of the machine, not of the training."""
_OF_FILES = ("KeptCheckpoints", "LastCheckpoint", "Limits")
"""Callbacks whose state is paths, or time."""

_KINDS = {"state_dict": "parameters at the end", "optimizer_states": "optimiser state at the end"}


@dataclass(frozen=True)
class Difference:
    """The first thing that is not the same."""

    what: str
    """Its name."""
    step: int | None
    """Of which step; None for what the checkpoint at the end holds."""
    rank: int | None
    """Of which process; None for what all have in common."""
    straight: str
    """What the run has that was never stopped."""
    resumed: str
    """What the other has."""

    def __str__(self) -> str:
        where = f"at step {self.step}" if self.step is not None else "at the end"
        of_rank = f" of process {self.rank}" if self.rank is not None else ""
        return f"{where}, {self.what}{of_rank}: {self.straight} in the straight run, {self.resumed} in the resumed one"


@dataclass(frozen=True)
class Comparison:
    """What was compared, and how it ended."""

    stopped_after: int
    """Steps before the stop."""
    epoch: int
    """The epoch in which it came, counted from 0."""
    step_of_epoch: int
    """Steps of that epoch before it."""
    num_steps: int
    """Steps of the straight run."""
    num_ranks: int
    """Processes of each run."""
    counts: dict[str, int]
    """How many values of each kind were compared."""
    first: Difference | None
    """The first difference; None where there is none."""

    @property
    def equal(self) -> bool:
        """Whether all is the same, bit for bit."""
        return self.first is None


def verify_resume(
    train: Callable[[Path, dict[str, Any]], None], folder: Path, steps: int, stop: StopKind = StopKind.steps
) -> Comparison:
    """Train straight, and with a stop in the middle, and compare the two.

    Args:
        train: Trains in a folder, with options changed, by their dotted names; with a `StepRecord` under the options
            ``callbacks.record.*``. A run that ends by a signal returns as any other.
        folder: Where the runs are written.
        steps: Optimiser steps before the stop, and again after it.
        stop: How it comes.

    Raises:
        ValueError: if a run ends too early to be compared.
    """
    straight, resumed = folder / "straight", folder / "resumed"
    common: dict[str, Any] = {"trainer.max_steps": 2 * steps, "trainer.patience": None, "trainer.report": False}
    if stop is StopKind.validation:
        common["trainer.validate_every"] = steps

    def run(run_dir: Path, **changes: Any) -> None:
        run_dir.mkdir(parents=True, exist_ok=True)
        record = {"callbacks.record._target_": STEP_RECORD, "callbacks.record.file": str(run_dir / RECORD)}
        train(run_dir, common | record | changes)

    run(straight)
    if stop is StopKind.signal:
        run(resumed, **{"callbacks.record.stop_at": steps})
    else:
        run(resumed, **{"trainer.max_steps": steps})
    last = resumed / "checkpoints" / LAST
    if not last.is_file():
        raise ValueError(f"the run that was to be stopped after step {steps} has left no {last}; choose fewer --steps")
    run(resumed, resume=str(last))
    return compare(straight, resumed, steps)


def compare(straight: Path, resumed: Path, stopped_after: int) -> Comparison:
    """Compare two runs, one of which was stopped, by what they have recorded, logged and kept.

    Args:
        straight: Folder of the run that was never stopped.
        resumed: Folder of the other.
        stopped_after: Steps before its stop.

    Raises:
        ValueError: if one of them has taken fewer steps.
    """
    records = [read_record(folder, RECORD) for folder in (straight, resumed)]
    at_stop = records[0][0].get(stopped_after)
    if at_stop is None:
        raise ValueError(
            f"the straight run has taken {len(records[0][0])} steps, not {stopped_after}; choose fewer --steps, or "
            "leave out what ends it earlier"
        )
    counts: Counter[str] = Counter()
    found: list[Difference] = []
    for kind, difference in chain(
        _steps(*records), _metrics(straight, resumed, stopped_after), _checkpoints(straight, resumed)
    ):
        counts[kind] += 1
        found += [difference] if difference is not None else []
    return Comparison(
        stopped_after,
        at_stop["epoch"],
        at_stop["step_of_epoch"],
        len(records[0][0]),
        len(records[0]),
        dict(counts),
        found[0] if found else None,
    )


Checked = Iterator[tuple[str, Difference | None]]
"""What was compared, value by value, and how it differs."""


def _steps(straight: list[dict[int, dict[str, Any]]], resumed: list[dict[int, dict[str, Any]]]) -> Checked:
    """Every step of every process."""
    if len(straight) != len(resumed):
        yield "processes", Difference("number of processes", None, None, str(len(straight)), str(len(resumed)))
        return
    for step in sorted(set().union(*straight, *resumed)):
        for rank, (one, two) in enumerate(zip(straight, resumed, strict=True)):
            of_rank = rank if len(straight) > 1 else None
            if step not in one or step not in two:
                taken = ["taken" if step in side else "not taken" for side in (one, two)]
                yield "steps", Difference("the step", step, of_rank, taken[0], taken[1])
                continue
            for field, name in FIELDS.items():
                values = one[step].get(field), two[step].get(field)
                if values != (None, None):
                    differs = Difference(name, step, of_rank, str(values[0]), str(values[1]))
                    yield name, differs if values[0] != values[1] else None


def _metrics(straight: Path, resumed: Path, stopped_after: int) -> Checked:
    """Every value of metrics.csv that does not measure time; there may be a validation more, at the stop."""
    one, two = _logged(straight), _logged(resumed)
    extra = {key for key in two.keys() - one.keys() if key[0] == stopped_after and not key[1].startswith("train/")}
    for step, name in sorted((one.keys() | two.keys()) - extra):
        values = one.get((step, name), "none"), two.get((step, name), "none")
        differs = Difference(f"logged {name}", step, None, *values)
        yield "logged metrics", differs if values[0] != values[1] else None


def _logged(run_dir: Path) -> dict[tuple[int, str], str]:
    file = run_dir / "metrics.csv"
    if not file.is_file():  # another logger was asked for
        return {}
    with file.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    return {
        (int(row["step"]), name): value
        for row in rows
        for name, value in row.items()
        if value and name != "step" and not any(word in name for word in _OF_TIME)
    }


def _checkpoints(straight: Path, resumed: Path) -> Checked:
    """Everything in the last checkpoints, but for times and paths."""
    one, two = (dict(_leaves(_kept(read_checkpoint(folder / "checkpoints" / LAST)))) for folder in (straight, resumed))
    for path in [*one, *(path for path in two if path not in one)]:
        kind = _KINDS.get(str(path[0]), "everything else in the checkpoint")
        values = one.get(path), two.get(path)
        if digest([values[0]]) == digest([values[1]]):
            yield kind, None
        else:
            shown = _where_they_differ(*values)
            yield kind, Difference(".".join(map(str, path)), None, None, *shown)


def _kept(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """What of a checkpoint must be the same."""
    callbacks = {name: state for name, state in checkpoint["callbacks"].items() if not name.startswith(_OF_FILES)}
    # the loops count validations, too, and the options differ in how many steps they ask for
    left = {name: value for name, value in checkpoint.items() if name not in ("loops", "callbacks", RUN_FILES)}
    first = {name: left[name] for name in ("state_dict", "optimizer_states")}
    return first | left | {"callbacks": callbacks}


def _leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every value that is no dictionary or list, with the way to it."""
    if isinstance(value, dict):
        for name, part in value.items():
            if not any(word in str(name) for word in _OF_TIME):
                yield from _leaves(part, (*path, name))
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _leaves(part, (*path, number))
    else:
        yield path, value


def _where_they_differ(one: Any, two: Any) -> tuple[str, str]:
    """Two values; of two tensors the first elements that differ."""
    if not isinstance(one, Tensor) or not isinstance(two, Tensor) or one.shape != two.shape:
        shown = [f"tensor {list(side.shape)}" if isinstance(side, Tensor) else repr(side) for side in (one, two)]
        return shown[0], shown[1]
    flat = one.flatten(), two.flatten()
    place = int(torch.nonzero(flat[0] != flat[1])[0]) if not torch.equal(*flat) else 0
    return f"{flat[0][place].item()!r} (element {place})", f"{flat[1][place].item()!r}"
