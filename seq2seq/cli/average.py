"""`seq2seq average`: a bundle whose weights are the mean of several checkpoints of one run."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from seq2seq.cli import UsageError


def average(
    checkpoints: Annotated[
        list[Path],
        typer.Argument(
            metavar="CHECKPOINT|RUN...", help="Checkpoint files, or the folder of a run for its latest ones."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The bundle to write.")],
    last: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Of a run's folder: how many of its latest checkpoints (default: the latest 5, or all if fewer).",
        ),
    ] = None,
) -> None:
    """Average the weights of checkpoints into a bundle, often some tenths of a BLEU point better than any of them."""
    from seq2seq.bundle import save_bundle
    from seq2seq.training.averaging import latest_checkpoints
    from seq2seq.training.run_folder import bundle_from_checkpoints, bundle_from_file

    for path in checkpoints:
        if not path.exists():
            raise FileNotFoundError(
                f"{path} does not exist; expected the folder of a run, or files of its checkpoints/ folder"
            )
    folders = [path for path in checkpoints if path.is_dir()]
    if folders and len(checkpoints) > 1:
        raise UsageError(f"got {len(checkpoints)} places; give one run's folder, or checkpoint files only")
    if last is not None and not folders:
        raise UsageError("--last is for the folder of a run; with checkpoint files, name those to average")
    files = latest_checkpoints(folders[0], last) if folders else checkpoints
    if len(files) == 1 and not _is_in_a_run(files[0]):
        bundle = bundle_from_file(files[0])
    else:
        bundle = bundle_from_checkpoints(_run_of(files), files)
    save_bundle(bundle, output)
    print(f"averaged {', '.join(file.name for file in files)}", file=sys.stderr)
    print(output)


def _is_in_a_run(file: Path) -> bool:
    return (file.absolute().parent.parent / "config.yaml").is_file()


def _run_of(files: list[Path]) -> Path:
    """The folder of the run that the checkpoints belong to; refused when they have different tokenizers."""
    from seq2seq.training.run_folder import read_run

    for file in files:
        if not _is_in_a_run(file):
            raise ValueError(
                f"{file} is not in the checkpoints/ folder of a run, whose options and tokenizer are needed too; name "
                "files of RUN/checkpoints/"
            )
    first, *others = dict.fromkeys(file.absolute().parent.parent for file in files)
    _, tokenizers, _ = read_run(first)
    for run in others:
        _, theirs, _ = read_run(run)
        if (theirs.source.sha256, theirs.target.sha256) != (tokenizers.source.sha256, tokenizers.target.sha256):
            raise ValueError(
                f"{run} and {first} have different tokenizers, so their weights mean different things; average "
                "checkpoints of one run"
            )
    return first
