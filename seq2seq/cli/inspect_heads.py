"""`seq2seq inspect heads`: what every attention head does over a test set, and which ones stand out."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from seq2seq.cli import UsageError
from seq2seq.cli.line_progress import LineProgress
from seq2seq.cli.search_options import Device
from seq2seq.config import LongLines, Task
from seq2seq.text.lines import is_blank, read_lines

if TYPE_CHECKING:
    from rich.progress import Progress

    from seq2seq.bundle import Bundle
    from seq2seq.inspection.heads import HeadReport, Pair
    from seq2seq.inspection.heads_report import Suspect

WIDE = 150
"""Columns of the table where nobody says how wide the terminal is."""


class Format(Enum):
    """How the numbers are printed."""

    table = "table"
    json = "json"
    markdown = "markdown"


def heads(
    model: Annotated[str, typer.Argument(help="Bundle of the model.", show_default=False)],
    src: Annotated[
        str,
        typer.Option("--src", help="Source text, one sentence a line; a language model's text.", show_default=False),
    ],
    tgt: Annotated[
        str | None, typer.Option("--tgt", help="Its translations (forced). Default: what greedy search finds.")
    ] = None,
    lines: Annotated[int | None, typer.Option("--lines", help="Only the first so many lines.")] = None,
    output: Annotated[str | None, typer.Option("--output", "-o", help="A picture too: .png, .svg or .pdf.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="How the numbers are printed.")] = Format.table,
    dpi: Annotated[int | None, typer.Option(help="Points of the picture for each inch.")] = None,
    device: Device = "auto",
) -> None:
    """Measure what every attention head does over a test set, and name the ones that stand out.

    entropy: of the weights, over a uniform head's: near 1 a head looks everywhere alike (dead). first, previous, same,
    next, punct., EOS, separator: the share of its weight that it puts there. agreement: how often the word of the
    source that it looks at most is the one of the mean of all heads. The rows "uniform" show what a head would have
    that looks everywhere alike.

    seq2seq inspect heads outputs/.../bundle --src test.de --tgt test.en -o heads.png
    """
    from seq2seq.bundle import load_bundle
    from seq2seq.inspection.heads_report import find_suspects
    from seq2seq.inspection.picture import DPI, check_picture
    from seq2seq.nn.device import find_device

    for name, number in (("--lines", lines), ("--dpi", dpi)):
        if number is not None and number < 1:
            raise UsageError(f"{name} {number} is not positive; give at least 1")
    if output is not None:
        check_picture(output)
    sources = read_lines(src)
    targets = None if tgt is None else read_lines(tgt)
    if targets is not None and len(targets) != len(sources):
        raise ValueError(
            f"{src} has {len(sources)} lines but {tgt} has {len(targets)}; expected the same number, as line n of one "
            "translates line n of the other"
        )
    bundle = load_bundle(model, find_device(device))
    if targets is not None and bundle.task is Task.language_model:
        raise UsageError("--tgt is for a model that translates; a language model's text is all in --src")
    report = measure(bundle, sources[:lines], None if targets is None else targets[:lines])
    suspects = find_suspects(report)
    if output is not None:
        from seq2seq.inspection.heads_picture import heads_picture

        width, height = heads_picture(report).save(output, dpi or DPI)
        print(f"wrote {output}, {width} x {height} points", file=sys.stderr)
    _print(report, suspects, format_)


def measure(bundle: "Bundle", sources: Sequence[str], targets: Sequence[str] | None) -> "HeadReport":
    """The numbers of all heads over the lines that are not blank.

    Raises:
        ValueError: if there is none, or a line is too long for the model.
    """
    from seq2seq.inspection.heads import measure_heads

    if bundle.task is Task.language_model:
        pairs: list[Pair] = [((), bundle.target_tokenizer.prompt(line)) for line in sources if not is_blank(line)]
    elif targets is not None:
        pairs = _given(bundle, sources, targets)
    else:
        pairs = _translated(bundle, sources)
    if len(pairs) < len(sources):
        print(f"left out {len(sources) - len(pairs)} of {len(sources)} lines that are blank", file=sys.stderr)
    for number, (source, target) in enumerate(pairs, start=1):
        bundle.model_config.check_lengths(len(source), len(target), f"sentence {number}, blank ones not counted,")
    with _bar(len(pairs)) as bar:
        return measure_heads(bundle, pairs, lambda count: bar.advance(bar.task_ids[0], count))


def _translated(bundle: "Bundle", sources: Sequence[str]) -> "list[Pair]":
    """Every line that is not blank, with the translation that greedy search finds."""
    from seq2seq.translator import Translator

    decode = replace(bundle.decode, beam_size=1, n_best=1, long_lines=LongLines.error)
    progress = LineProgress(list(sources), wanted=True)
    try:
        answers = list(progress.follow(Translator(bundle).stream(sources, decode)))
    finally:
        progress.stop()
    return [(answer.source_ids[0], answer.candidates[0].ids) for answer in answers if answer.source_ids]


def _given(bundle: "Bundle", sources: Sequence[str], targets: Sequence[str]) -> "list[Pair]":
    """Every line with its target, where neither is blank."""
    source_eos, target_eos = bundle.source_tokenizer.special.eos, bundle.target_tokenizer.special.eos
    return [
        ((*bundle.source_tokenizer.encode(source), source_eos), (*bundle.target_tokenizer.encode(target), target_eos))
        for source, target in zip(sources, targets, strict=True)
        if not is_blank(source) and not is_blank(target)
    ]


def _bar(total: int) -> "Progress":
    """A bar on standard error, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("measuring heads"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("sentences"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        disable=not sys.stderr.isatty(),
    )
    bar.add_task("", total=total)
    return bar


def _print(report: "HeadReport", suspects: "Sequence[Suspect]", form: Format) -> None:
    """The numbers and the suspects, on standard output."""
    from seq2seq.inspection.heads_report import as_data, as_markdown, as_table, counted, sentences

    if form is Format.json:
        print(json.dumps(as_data(report, suspects), ensure_ascii=False))
        return
    if form is Format.markdown:
        print(as_markdown(report, suspects))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else WIDE)
    found = as_table(report, suspects)
    table = Table(box=box.SIMPLE_HEAD, caption=f"means over {counted(report)}", caption_justify="left")
    for at, name in enumerate(found.headers):
        table.add_column(name, justify="left" if at in (0, len(found.headers) - 1) else "right")
    for row in found.rows:
        table.add_row(*row, style="dim" if row[2] == "uniform" else "")
    console.print(table)
    for sentence in sentences(suspects):
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
