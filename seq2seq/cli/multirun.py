"""What the jobs of `seq2seq train --multirun` came to: a table on stdout, and results.csv and results.json.

Each job leaves a file in the sweep's folder, so that they are found whatever ran the jobs: this process, others, or the
nodes of a cluster.
"""

import csv
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.cli import UsageError
from seq2seq.cli.ranks import Outcome
from seq2seq.config import TrainConfig

if TYPE_CHECKING:
    from seq2seq.cli.inspect_tables import Grid

_PARTS = ".jobs"
"""Folder in the sweep's, with a file of each job, until the table is made."""

_PLUGINS = {
    "hydra/sweeper=optuna": ("hydra_plugins.hydra_optuna_sweeper", "hydra-optuna-sweeper", "sweep"),
    "hydra/launcher=submitit": ("hydra_plugins.hydra_submitit_launcher", "hydra-submitit-launcher", "slurm"),
}
"""What a choice begins with, the module that it needs, and its package and our extra that bring it."""

_sweep: Path | None = None
"""Folder of the sweep that goes on in this process."""


@dataclass(frozen=True)
class Job:
    """One job of a sweep."""

    number: int
    options: list[str]
    """What was typed for it, or chosen by a sweeper."""
    metric: str | None = None
    """Name of the metric that decides."""
    larger_is_better: bool = True
    score: float | None = None
    """Its best value; None if the run had none, or failed."""
    steps: int | None = None
    """Optimiser steps taken."""
    bundle: str | None = None
    """The model."""
    failure: str | None = None
    """Why it failed; None if it did not."""


def check_plugins(overrides: Sequence[str]) -> None:
    """Refuse a sweeper or launcher of Hydra's plug-ins that is not installed.

    Raises:
        UsageError: saying what to install.
    """
    for choice, (module, package, extra) in _PLUGINS.items():
        found = next((override for override in overrides if override.lstrip("+").startswith(choice)), None)
        if found is not None and not _is_there(module):
            raise UsageError(f"{found} needs the package {package}; pip install 'seq2seq[{extra}]'")


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False


def begin(folder: Path) -> None:
    """Have `print_results` look there."""
    global _sweep
    _sweep = folder


def note_result(config: TrainConfig, result: Outcome) -> None:
    """Leave word of a run that has ended well; nothing is done outside of a sweep."""
    job = _this_job()
    if job is None:
        return
    from seq2seq.config import Direction
    from seq2seq.training.checkpoints import monitored

    monitor = monitored(config, own_metrics=bool(config.callbacks))
    _write(
        replace(
            job,
            metric=monitor.metric,
            larger_is_better=monitor.direction is Direction.max,
            score=result.best_score,
            steps=result.steps,
            bundle=os.path.relpath(result.bundle),
        )
    )


def note_failure(error: Exception) -> None:
    """Leave word of a run that has failed; nothing is done outside of a sweep."""
    job = _this_job()
    if job is not None:
        _write(replace(job, failure=str(error)))


def _this_job() -> Job | None:
    """The job that runs in this process; None outside of a sweep."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    hydra = HydraConfig.get()
    if hydra.mode is not RunMode.MULTIRUN:
        return None
    return Job(int(hydra.job.num), [str(override) for override in hydra.overrides.task])


def _write(job: Job) -> None:
    from hydra.core.hydra_config import HydraConfig

    folder = Path(HydraConfig.get().sweep.dir).absolute() / _PARTS
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(job), ensure_ascii=False)
    (folder / f"{job.number:06d}.json").write_text(text, encoding="utf-8")


def print_results() -> int:
    """Print the table of the sweep that has ended, or was interrupted, and write it beside the jobs.

    Returns:
        How many of the jobs failed.
    """
    global _sweep
    folder, _sweep = _sweep, None
    if folder is None or not (folder / _PARTS).is_dir():
        return 0
    files = sorted((folder / _PARTS).glob("*.json"))
    jobs = ranked([Job(**json.loads(file.read_text(encoding="utf-8"))) for file in files])
    write_table(jobs, folder)
    shutil.rmtree(folder / _PARTS)

    from seq2seq.cli.inspect_tables import show

    show([grid(jobs, f"{os.path.relpath(folder)}: {len(jobs)} jobs, best first")])
    return sum(job.failure is not None for job in jobs)


def ranked(jobs: Sequence[Job]) -> list[Job]:
    """The best first, then those without a score, then those that failed, each in the order in which they ran."""

    def key(job: Job) -> tuple[bool, bool, float, int]:
        score = 0.0 if job.score is None else -job.score if job.larger_is_better else job.score
        return job.failure is not None, job.score is None, score, job.number

    return sorted(jobs, key=key)


def grid(jobs: Sequence[Job], title: str) -> "Grid":
    """The jobs as a table; options that all of them have are left out."""
    from seq2seq.cli.inspect_tables import Grid

    shared = set.intersection(*(set(job.options) for job in jobs)) if len(jobs) > 1 else set()
    metric = next((job.metric for job in jobs if job.metric is not None), "score")
    rows = [
        (
            str(job.number),
            " ".join(option for option in job.options if option not in shared) or "as given",
            "" if job.score is None else f"{job.score:.4f}",
            "" if job.steps is None else f"{job.steps:,}",
            f"failed: {job.failure}" if job.failure is not None else job.bundle or "",
        )
        for job in jobs
    ]
    below = ("all with " + " ".join(sorted(shared)),) if shared else ()
    return Grid(title, (">job", "options", f">{metric}", ">steps", "bundle"), tuple(rows), below)


def write_table(jobs: Sequence[Job], folder: Path) -> None:
    """Write results.csv and results.json."""
    rows: list[dict[str, Any]] = [asdict(job) for job in jobs]
    (folder / "results.json").write_text(json.dumps(rows, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    with (folder / "results.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, [field.name for field in fields(Job)])
        writer.writeheader()
        writer.writerows({**row, "options": " ".join(row["options"])} for row in rows)
