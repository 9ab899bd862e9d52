"""`seq2seq doctor`: does this model give the same answers in every way that must make no difference?"""

import json
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2seq.cli import UsageError
from seq2seq.cli.machine import use_threads
from seq2seq.cli.search_options import BeamSize, Device, Threads
from seq2seq.text.lines import read_lines

if TYPE_CHECKING:
    from rich.progress import Progress

    from seq2seq.bundle import Bundle
    from seq2seq.search.agreement import Answers, Check, Finding

WIDE = 110
"""Columns of the table where nobody says how wide the terminal is."""

SHOWN = 60
"""Characters of a text in the report, around the place where it differs."""


class Format(Enum):
    """How the findings are printed."""

    table = "table"
    json = "json"


def doctor(
    model: Annotated[str, typer.Argument(help="Bundle of the model.", show_default=False)],
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="Text to try it with. Default: random pieces of its own vocabulary."),
    ] = None,
    lines: Annotated[int, typer.Option("--lines", help="So many lines, the first ones of FILE.")] = 50,
    seed: Annotated[int, typer.Option(help="Of the random lines.")] = 1,
    format_: Annotated[Format, typer.Option("--format", help="What to print on stdout.")] = Format.table,
    beam_size: BeamSize = None,
    aoti: Annotated[
        bool,
        typer.Option(
            "--aoti",
            help="Check the compiled code in the bundle too, which is run for that: take bundles only that you trust.",
        ),
    ] = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Check that a model gives the same answers alone and in batches, with and without cache, in one process and two.

    equal: the same text, and scores within 1e-4 (relative to the larger one; float32). rounding: other text, but both
    have the same score within that, or both ways find the same in float64 (which is not tried with two processes or
    compiled code). differs: a fault, and exit code 1; only for bfloat16 and what else computes with other numbers it is
    no fault, but information.

    A language model is checked with what it adds to the lines.

    seq2seq doctor outputs/.../bundle test.de
    """
    for name, number in (("--lines", lines), ("--beam-size", beam_size)):
        if number is not None and number < 1:
            raise UsageError(f"{name} {number} is not positive; give at least 1")
    use_threads(threads)
    text = None if file is None else read_lines(file)[:lines]
    if text is not None and not text:
        raise ValueError(f"{file} is empty; expected text, one sentence a line")

    from seq2seq.bundle import load_bundle
    from seq2seq.nn.device import find_device
    from seq2seq.text.random_lines import random_lines

    bundle = load_bundle(model, find_device(device))
    if text is None:
        text = random_lines(bundle.source_tokenizer, lines, seed)
    findings = run(choose(bundle, model, text, beam_size, compiled=aoti))
    if format_ is Format.json:
        print(json.dumps(as_data(findings, model, file, text), ensure_ascii=False))
    else:
        show(findings, text)
    if any(finding.fails for finding in findings):
        raise typer.Exit(1)


def choose(
    bundle: "Bundle", path: str, lines: Sequence[str], beam_size: int | None, *, compiled: bool = False
) -> "list[Check]":
    """The checks that make sense for the bundle.

    Args:
        bundle: The model.
        path: Where it is on disk, for other processes.
        lines: To try it with.
        beam_size: None is the bundle's.
        compiled: Whether to run the bundle's compiled code too.

    Raises:
        ValueError: if it has none for this machine.
    """
    from seq2seq.cli.doctor_processes import two_processes
    from seq2seq.config import Task, to_dict
    from seq2seq.generator import doctor as of_text
    from seq2seq.search.agreement import TOLERANCE, Check, NotApplicableError
    from seq2seq.translator import doctor as of_lines

    if compiled:
        from seq2seq.translator.compiled_package import check_there

        check_there(path)
    if bundle.task is Task.language_model:
        return of_text.checks(bundle, lines, beam_size or of_text.BEAM_SIZE)
    decode = of_lines.searched(bundle.decode, beam_size)

    def processes() -> "Answers":
        own, searched = to_dict(bundle.decode), to_dict(of_lines.searched(bundle.decode, bundle.decode.beam_size))
        if any(own[name] != value for name, value in searched.items() if name not in ("n_best", "long_lines")):
            raise NotApplicableError("the bundle's own options draw, choose by risk, or take a shortlist")
        return two_processes(bundle, path, lines, decode)

    checks = of_lines.checks(bundle, lines, decode)
    place = next(at for at, check in enumerate(checks) if not check.must_agree)
    others = [Check("1 against 2 processes", ("1 process", "2 processes"), processes, tolerance=TOLERANCE)]
    if compiled:
        ways = of_lines.Ways(bundle, lines, decode)
        names = ("modules", "compiled")
        others.append(
            Check("modules against compiled code", names, lambda: ways.compiled(path, alone=False), tolerance=TOLERANCE)
        )
        others.append(
            Check("compiled code, line alone", names, lambda: ways.compiled(path, alone=True), tolerance=TOLERANCE)
        )
    checks[place:place] = others
    return checks


def run(checks: "Sequence[Check]") -> "list[Finding]":
    """What each check finds, one after the other."""
    from seq2seq.search.agreement import examine

    findings = []
    with _bar(len(checks)) as bar:
        for check in checks:
            bar.update(bar.task_ids[0], description=check.name)
            findings.append(examine(check))
            bar.advance(bar.task_ids[0])
    return findings


def _bar(total: int) -> "Progress":
    """A line on standard error with what is being checked, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("checks"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        disable=not sys.stderr.isatty(),
    )
    bar.add_task("", total=total)
    return bar


def show(findings: "Sequence[Finding]", lines: Sequence[str]) -> None:
    """The findings as a table, then the first line of each check that differs, then what it all means."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else WIDE)
    table = Table(box=box.SIMPLE_HEAD, caption="score gap: the largest difference of scores", caption_justify="left")
    for name in ("check", "result", "differ", "score gap", "seconds"):
        table.add_column(name, justify="left" if name in ("check", "result") else "right", no_wrap=True)
    for finding in findings:
        result = finding.outcome.value + (" (information)" if _is_information(finding) else "")
        table.add_row(finding.check.name, result, *_numbers(finding), f"{finding.seconds:.1f}")
    console.print(table)
    for finding in findings:
        for sentence in _told(finding, lines):
            console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    console.print(verdict(findings), markup=False, highlight=False, soft_wrap=True)


def _is_information(finding: "Finding") -> bool:
    from seq2seq.search.agreement import Outcome

    return finding.outcome is Outcome.differs and not finding.check.must_agree


def _numbers(finding: "Finding") -> tuple[str, str]:
    found = finding.comparison
    return (
        ("", "") if found is None else (f"{len(found.differences)} of {found.num_answers}", f"{found.largest_gap:.2g}")
    )


def _told(finding: "Finding", lines: Sequence[str]) -> Iterable[str]:
    """What is to be said of a finding besides its row: the reason, and the first line that differs."""
    found = finding.comparison
    if found is None:
        yield f"{finding.check.name}: not applicable: {finding.note}"
        return
    if not found.differences:
        return
    first = found.differences[0]
    yield f"{finding.check.name}: first in line {first.line}, scores {first.gap:.3g} apart"
    if finding.note:
        yield f"  {finding.note}"
    width = max(map(len, finding.check.sides))
    texts = _around_difference(*(answer.text for answer in first.answers))
    for side, answer, text in zip(finding.check.sides, first.answers, texts, strict=True):
        yield f"  {side:<{width}}  {answer.score:.6f}  {text}"


def _around_difference(first: str, second: str) -> tuple[str, str]:
    """Both texts, cut down to where they part."""
    same = next((at for at, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), None)
    place = same if same is not None else min(len(first), len(second))
    start = max(0, place - SHOWN // 2)

    def part(text: str) -> str:
        return ("…" if start else "") + text[start : start + SHOWN] + ("…" if len(text) > start + SHOWN else "")

    return part(first), part(second)


def verdict(findings: "Sequence[Finding]") -> str:
    """One sentence on all of it."""
    failed = [finding.check.name for finding in findings if finding.fails]
    if failed:
        return f"{len(failed)} of {len(findings)} checks failed: {', '.join(failed)}"
    return "Everything that must agree does."


def as_data(findings: "Sequence[Finding]", model: str, file: str | None, lines: Sequence[str]) -> dict[str, Any]:
    """The findings as plain builtins, for JSON."""
    return {
        "model": model,
        "file": file,
        "lines": len(lines),
        "ok": not any(finding.fails for finding in findings),
        "checks": [_check_data(finding, lines) for finding in findings],
    }


def _check_data(finding: "Finding", lines: Sequence[str]) -> dict[str, Any]:
    found = finding.comparison
    data: dict[str, Any] = {
        "check": finding.check.name,
        "sides": finding.check.sides,
        "result": finding.outcome.name,
        "must_agree": finding.check.must_agree,
        "note": finding.note or None,
        "seconds": round(finding.seconds, 3),
    }
    if found is None:
        return data
    first = found.differences[0] if found.differences else None
    return data | {
        "compared": found.num_answers,
        "differ": len(found.differences),
        "largest_score_difference": found.largest_gap,
        "first": None
        if first is None
        else {
            "line": first.line,
            "texts": [answer.text for answer in first.answers],
            "scores": [answer.score for answer in first.answers],
        },
    }
