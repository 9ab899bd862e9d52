"""One training run by several processes: started here, or by torchrun or SLURM's srun.

One process composes the options and decides on the run's folder: the one that starts the others, or of those that were
started together rank 0. The others are told the outcome, so they have the same options and the same folder, and Hydra,
which would make a folder and a log of its own for each, never runs in them.
"""

import json
import logging
import logging.config
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seq2seq.cli import processes
from seq2seq.config import Task, TrainConfig, from_dict, to_dict
from seq2seq.training import launch

JOB = "SEQ2SEQ_JOB"
"""In the environment of a process that this module has started: the folder with what it is to do."""


@dataclass(frozen=True)
class Job:
    """What every process of a run is told."""

    options: dict[str, Any]
    """All of them, as plain values."""
    run_dir: str
    """Where the run is written."""
    logging: dict[str, Any] | None = None
    """How rank 0 logs, as `logging.config` takes it."""

    @property
    def config(self) -> TrainConfig:
        """The options."""
        return from_dict(TrainConfig, self.options)


@dataclass(frozen=True)
class Outcome:
    """What a run ended with; the same as `FitResult`, which needs torch."""

    bundle: Path
    """The model to use."""
    steps: int
    """Optimiser steps taken."""
    best_score: float | None
    """Best value of the monitored metric."""
    task: Task
    """What the model is for."""


Train = Callable[[TrainConfig, Path], Outcome]
"""Trains in this process."""


def train(config: TrainConfig, run_dir: Path, logging_: dict[str, Any] | None, here: Train) -> Outcome:
    """Train with as many processes as the options say.

    Args:
        config: Every option.
        run_dir: Where the run is written.
        logging_: How rank 0 logs, if it is another process than this one.
        here: Trains in this process.

    Raises:
        ValueError: if what was started and what the options say do not fit together.
        ProcessFailedError: what the process that failed first said.
        SystemExit: after a signal, with its code.
    """
    trainer = config.trainer
    if launch.place() is None and trainer.devices > 1 and trainer.num_nodes == 1:
        return _started(Job(to_dict(config), str(run_dir), logging_), trainer.devices)
    launch.check_started(trainer)
    if is_one_of_several():
        share(Job(to_dict(config), str(run_dir)))
    return here(config, run_dir)


def _started(job: Job, number: int) -> Outcome:
    """Start the processes of this machine."""
    with tempfile.TemporaryDirectory(prefix="seq2seq-") as folder:
        (Path(folder) / "job.json").write_text(json.dumps(asdict(job)), encoding="utf-8")
        # the arguments are those typed, for whoever looks at a list of processes; `work` does not read them
        command = [sys.executable, "-m", "seq2seq", *(sys.argv[1:] or ["train"])]
        signum = processes.run_together(command, number, {JOB: folder})
        if signum is not None:
            raise SystemExit(128 + signum)
        outcome = json.loads((Path(folder) / "outcome.json").read_text(encoding="utf-8"))
    return Outcome(Path(outcome["bundle"]), outcome["steps"], outcome["best_score"], Task[outcome["task"]])


def is_worker() -> bool:
    """Whether this process was started by `train`."""
    return JOB in os.environ


def work(here: Train) -> None:
    """Do this process' part of a run, as one that `train` has started."""
    processes.end_with_parent()
    processes.tell_parent_of_errors()
    folder = Path(os.environ[JOB])
    job = Job(**json.loads((folder / "job.json").read_text(encoding="utf-8")))
    rank = int(os.environ["RANK"])
    log_as(rank, job.logging)
    outcome = here(job.config, Path(job.run_dir))
    if rank == 0:
        told = asdict(outcome) | {"bundle": str(outcome.bundle), "task": outcome.task.name}
        (folder / "outcome.json").write_text(json.dumps(told), encoding="utf-8")
    launch.part()


def log_as(rank: int, how: dict[str, Any] | None) -> None:
    """Rank 0 logs as the options say; the others tell warnings alone, on standard error."""
    if rank == 0 and how is not None:
        logging.config.dictConfig(how)
    else:
        level = logging.INFO if rank == 0 else logging.WARNING
        logging.basicConfig(level=level, format=f"rank {rank}: %(message)s" if rank else "%(message)s", force=True)


def is_one_of_several() -> bool:
    """Whether torchrun or srun has started this process together with others."""
    place = launch.place()
    return place is not None and place.num_ranks > 1


def follows() -> bool:
    """Whether another one of those processes leads."""
    place = launch.place()
    return place is not None and place.rank > 0


@contextmanager
def leading(leads: bool) -> Iterator[None]:
    """If this process leads others, lets them go at the end.

    When a job has failed or was interrupted they know it, or are about to be ended by whoever has started them; what
    goes wrong before a job, they have to be told.
    """
    try:
        yield
    except Exception:
        if leads:
            share(None)
        raise
    if leads:
        share(None)
        launch.part()


def share(job: Job | None) -> Job | None:
    """Rank 0's next job, on all ranks; None when there is none left. Every rank must call it."""
    from seq2seq.training.distribution import from_rank_zero

    launch.meet()
    return from_rank_zero(job)


def follow(here: Train) -> None:
    """Do this process' part of all that rank 0 does, as another one of those that torchrun or srun has started.

    Raises:
        SystemExit: if it fails, with 1.
    """
    place = launch.place()
    assert place is not None
    log_as(place.rank, None)
    while (job := share(None)) is not None:
        try:
            here(job.config, Path(job.run_dir))
        except (ValueError, OSError) as error:
            print(f"rank {place.rank}: error: {error}", file=sys.stderr, flush=True)
            raise SystemExit(1) from error
    launch.part()
