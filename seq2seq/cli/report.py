"""`seq2seq report`: curves, samples, options and versions of a run on one page."""

from pathlib import Path
from typing import Annotated

import typer

from seq2seq.cli import UsageError


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of runs, finished or not; several are laid over each other."),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page to write (default, for one run: RUN/report.html).")
    ] = None,
) -> None:
    """Write a page with the curves, sample translations, options and versions of a run; it needs no network."""
    from seq2seq.training.report import REPORT_FILE, write_report

    if output is None and len(runs) > 1:
        raise UsageError(f"got {len(runs)} runs; say with -o where their common page goes")
    file = output if output is not None else runs[0] / REPORT_FILE
    write_report(runs, file)
    print(file)
