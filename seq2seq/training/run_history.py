"""What a run's folder tells of its course: metrics by step, sample translations, options, versions."""

import csv
import dataclasses
import io
import json
import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from seq2seq.config import TrainConfig, option_name, to_dict
from seq2seq.training.options_file import read_facts, read_options


@dataclass(frozen=True)
class Series:
    """One metric over the steps at which it was logged; values that are no finite numbers are left out."""

    steps: list[int]
    """Optimiser steps, rising."""
    values: list[float]
    """The metric at each of them."""


@dataclass(frozen=True)
class SampleLine:
    """One line of the validation text and what the model made of it at each validation."""

    source: str
    """The line to translate, or the prompt to go on from."""
    answers: list[tuple[int, str]]
    """Step and answer, one for each validation."""
    place: int | None = None
    """Number of the line, counted from 1; None for a prompt."""
    reference: str | None = None
    """What a person wrote; None for a prompt."""


@dataclass(frozen=True)
class RunHistory:
    """A run, finished or not."""

    name: str
    """The last two parts of its folder."""
    metrics: dict[str, Series]
    """By name; empty where nothing wrote metrics.csv."""
    samples: list[SampleLine]
    """In the order of the lines."""
    config: dict[str, Any]
    """Every option."""
    facts: dict[str, Any] = field(default_factory=dict)
    """run.json: start, versions, text."""

    def last(self, metric: str) -> float | None:
        """The latest value of a metric; None if it has none."""
        series = self.metrics.get(metric)
        return series.values[-1] if series is not None else None

    @property
    def num_steps(self) -> int:
        """The last step that was logged."""
        return max((series.steps[-1] for series in self.metrics.values()), default=0)


def read_history(run_dir: str | Path) -> RunHistory:
    """The course of a run.

    Raises:
        FileNotFoundError: if the folder is not a run's.
        ValueError: if metrics.csv, samples.jsonl, config.yaml or run.json cannot be read.
    """
    run_dir = Path(run_dir)
    config = read_options(run_dir)
    return RunHistory(
        name="/".join(run_dir.resolve().parts[-2:]),
        metrics=_read_metrics(run_dir / "metrics.csv"),
        samples=_read_samples(run_dir / "samples.jsonl"),
        config=to_dict(config),
        facts=read_facts(run_dir) if (run_dir / "run.json").is_file() else {},
    )


def _read_metrics(file: Path) -> dict[str, Series]:
    if not file.is_file():
        return {}
    found: dict[str, dict[int, float]] = {}
    try:
        text = file.read_text(encoding="utf-8")
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except (csv.Error, UnicodeDecodeError) as problem:
        raise ValueError(f"{file} is damaged: {problem}") from problem
    for number, row in enumerate(rows, start=2):
        try:
            step = int(float(row.pop("step")))
            values = {name: float(text) for name, text in row.items() if text}
        except (KeyError, OverflowError, TypeError, ValueError) as problem:
            raise ValueError(f"{file}, line {number}: expected a step and numbers, got {row}") from problem
        for name, value in values.items():
            if math.isfinite(value):
                found.setdefault(name, {})[step] = value  # a step that was logged twice counts once
    ordered = {name: sorted(points.items()) for name, points in found.items()}
    return {
        name: Series([step for step, _ in points], [value for _, value in points]) for name, points in ordered.items()
    }


def _read_samples(file: Path) -> list[SampleLine]:
    if not file.is_file():
        return []
    lines: dict[tuple[int | None, str], SampleLine] = {}
    try:
        content = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise ValueError(f"{file} is damaged: {problem}") from problem
    for number, text in enumerate(content.split("\n"), start=1):
        if not text:
            continue
        try:
            row = json.loads(text)
            line, answer = _sample(row)
            lines.setdefault((line.place, line.source), line).answers.append((int(row["step"]), answer))
        except (KeyError, TypeError, ValueError) as problem:
            raise ValueError(f"{file}, line {number}: expected a sample of a validation, got {text:.100}") from problem
    return list(lines.values())


def _sample(row: dict[str, Any]) -> tuple[SampleLine, str]:
    """A line, or a prompt, without its answers, and the answer."""
    if "prompt" in row:
        return SampleLine(row["prompt"], []), row["continuation"]
    return SampleLine(row["source"], [], int(row["line"]), row["reference"]), row["translation"]


def changed_options(config: dict[str, Any], names: Sequence[str] = ()) -> dict[str, Any]:
    """The options, by dotted name, that differ from their defaults; those without a default always do.

    Args:
        config: Every option, nested as in config.yaml.
        names: Parts of the name above; none for all options.
    """
    defaults = _defaults()
    changed: dict[str, Any] = {}
    for name, value in config.items():
        path = [*names, name]
        dotted = ".".join(path)
        if isinstance(value, dict) and dotted not in ("logger", "callbacks"):
            changed |= changed_options(value, path)
        elif dotted not in defaults or defaults[dotted] != value:
            changed[dotted] = value
    return changed


def _defaults() -> dict[str, Any]:
    """Every option that has a default, by dotted name, as plain values."""

    def of(cls: type, prefix: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        hints = typing.get_type_hints(cls)
        for declared in dataclasses.fields(cls):
            name = prefix + option_name(declared.name)
            if dataclasses.is_dataclass(hints[declared.name]):
                found |= of(typing.cast(type, hints[declared.name]), name + ".")
            elif declared.default is not dataclasses.MISSING:
                found[name] = declared.default.name if isinstance(declared.default, Enum) else declared.default
            elif declared.default_factory is not dataclasses.MISSING:
                found[name] = declared.default_factory()
        return found

    return of(TrainConfig, "")
