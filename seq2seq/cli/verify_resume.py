"""`seq2seq verify-resume`: whether a stopped and resumed run is the run that was never stopped, bit for bit."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

import seq2seq
from seq2seq.cli import UsageError
from seq2seq.cli.options import check_overrides
from seq2seq.cli.train import conf_dir
from seq2seq.config import StopKind

if TYPE_CHECKING:
    from seq2seq.training.verify_resume import Comparison

_TERMINATED = 128 + 15
_NUM_LINES = {"train": 240, "valid": 12}
"""Of the phrasebook, so that an epoch is over in seconds."""


def verify_resume(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=VALUE|GROUP=CHOICE]...", help="Options, as `seq2seq train` takes them."),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps before the stop, and as many after it.")] = 10,
    stop: Annotated[
        StopKind,
        typer.Option(
            help="steps: at a limit; validation: right after a validation; signal: by SIGTERM, in mid-epoch.",
        ),
    ] = StopKind.signal,
    devices: Annotated[int, typer.Option(min=1, help="Processes on the CPU that train together.")] = 1,
    keep: Annotated[Path | None, typer.Option(help="A new folder for the runs; else they are removed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train twice: straight, and stopped in the middle and resumed. Exit code 0 if both are equal bit for bit, else 1.

    Compared are the batches, segmentations, learning rates, random numbers, losses and parameters of every step, all
    logged metrics, and the checkpoints at the end. Without experiment=... it is a tiny model on some lines of the
    phrasebook, with dropout, subword sampling, scheduled sampling and two batches a step.
    """
    from seq2seq.training.verify_resume import verify_resume as verify

    given = list(overrides or [])
    check_overrides(given, [conf_dir()])
    if keep is not None and keep.exists():
        raise ValueError(f"--keep {keep}: it exists; choose a new folder")
    scratch = tempfile.TemporaryDirectory() if keep is None else nullcontext(str(keep))
    with scratch as name, Console(stderr=True).status("") as status:
        folder = Path(name).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        typed = [*_defaults(given, folder, steps), *_processes(devices), *given]
        comparison = verify(_training(typed, lambda text: status.update(text)), folder, steps, stop)
    print(json.dumps(_as_json(comparison, stop), indent=2) if as_json else _as_text(comparison, stop))
    if not comparison.equal:
        raise typer.Exit(1)


def _defaults(given: Sequence[str], folder: Path, steps: int) -> list[str]:
    """The options of a small run with everything random that there is; none with an experiment of the user's."""
    names = [override.lstrip("+~").partition("=")[0] for override in given]
    if "experiment" in names:
        return []
    small = [
        "experiment=smoke",
        "data.batch_tokens=320",
        "data.max_length=60",
        "trainer.accumulate=2",
        "trainer.log_every=3",
        "trainer.validate_every=null",
        "trainer.num_threads=1",
        "scheduled_sampling.rate=0.5",
        f"scheduled_sampling.end_step={2 * steps}",
    ]
    if "data" in names or any(name.startswith("data.train") for name in names):
        return small
    return [*small, "data.tokenizer.sampling_alpha=0.3", *_phrasebook(folder)]


def _phrasebook(folder: Path) -> list[str]:
    """The options for some lines of the generated corpus, which are written into `folder`."""
    there = Path(seq2seq.__file__).parent.parent / "data" / "phrasebook_en_de"
    options = []
    for split, num in _NUM_LINES.items():
        for side, language in (("source", "en"), ("target", "de")):
            file = there / f"{split}.{language}"
            if not file.is_file():
                raise FileNotFoundError(
                    f"{file}, the phrasebook of this package's repository, is not there; give text of your own: "
                    "data.train_source=FILE data.train_target=FILE"
                )
            lines = file.read_text(encoding="utf-8").split("\n")[:num]
            cut = folder / file.name
            cut.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
            options.append(f"data.{split}_{side}={_quoted(cut)}")
    return options


def _processes(devices: int) -> list[str]:
    return [] if devices == 1 else ["trainer=ddp_cpu", f"trainer.devices={devices}", "trainer.patience=null"]


def _training(typed: Sequence[str], tell: Callable[[str], None]) -> Callable[[Path, dict[str, Any]], None]:
    """Trains by the command `seq2seq train`, each time in processes of its own."""

    def train(run_dir: Path, changes: dict[str, Any]) -> None:
        what = f"{run_dir.name}{', going on' if 'resume' in changes else ''}"
        tell(f"training: {what}")
        options = [
            f"{'+' if name.startswith('callbacks.') else ''}{name}={_quoted(value)}" for name, value in changes.items()
        ]
        command = [sys.executable, "-m", "seq2seq", "train", *typed, *options, f"hydra.run.dir={_quoted(run_dir)}"]
        ended = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
        if ended.returncode not in (0, _TERMINATED):
            said = "\n".join(ended.stderr.splitlines()[-5:]).removeprefix("error: ")
            kind = UsageError if ended.returncode == 2 else ValueError
            raise kind(f"the training ({what}) ended with exit code {ended.returncode}: {said}")

    return train


def _quoted(value: Any) -> str:
    """A value as Hydra reads it."""
    if isinstance(value, str | Path):
        escaped = str(value).replace("'", "\\'")
        return f"'{escaped}'"
    return json.dumps(value)


def _as_json(comparison: "Comparison", stop: StopKind) -> dict[str, Any]:
    return {"equal": comparison.equal, "stop": stop.value, **asdict(comparison)}


def _as_text(comparison: "Comparison", stop: StopKind) -> str:
    how = {
        StopKind.steps: "a limit of steps",
        StopKind.validation: "a limit of steps, right after a validation",
        StopKind.signal: "SIGTERM",
    }[stop]
    lines = [
        f"{comparison.num_steps} steps straight, and {comparison.stopped_after} with a stop (by {how}, "
        f"{comparison.step_of_epoch} steps into epoch {comparison.epoch}) and the rest after it; "
        f"processes: {comparison.num_ranks}",
        *(f"  {kind:<36}{num:>7} compared" for kind, num in comparison.counts.items()),
        "equal, bit for bit" if comparison.first is None else f"not equal: {comparison.first}",
    ]
    return "\n".join(lines)
