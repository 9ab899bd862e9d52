"""`seq2seq translate`: lines of text in, their translations out, in order and N for N."""

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2seq.cli import UsageError
from seq2seq.cli.line_progress import LineProgress
from seq2seq.cli.machine import use_threads
from seq2seq.cli.search_options import (
    BatchTokens,
    BeamSize,
    Device,
    LengthExponent,
    Long,
    MaxLength,
    MaxLengthFactor,
    MaxLengthOffset,
    MaxSourceLength,
    MinLength,
    MinLengthFactor,
    Penalty,
    Threads,
)
from seq2seq.text.lines import iter_lines, read_lines, write_lines

if TYPE_CHECKING:
    from seq2seq.translator import Candidate, Translation, Translator

STDIN = "-"

OUTPUT = "Output"


class Format(Enum):
    """How translations are written."""

    text = "text"
    jsonl = "jsonl"


def translate(
    model: Annotated[str, typer.Argument(help="Bundle of the model.", show_default=False)],
    source: Annotated[
        str, typer.Argument(metavar="[INPUT]", help="Text, one segment a line, plain or .gz; - is standard input.")
    ] = STDIN,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="File to write (.gz compresses); it appears when all is done. Default: standard output.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    format_: Annotated[
        Format,
        typer.Option(
            "--format",
            help="text: one translation a line. jsonl: an object a line of input, with pieces, ids and scores; "
            "`seq2seq score --jsonl` reads it.",
            rich_help_panel=OUTPUT,
        ),
    ] = Format.text,
    n_best: Annotated[
        int | None,
        typer.Option(
            help="Translations for each line. As text always so many lines for each line of input: where fewer "
            "distinct ones were found, or the input line is blank, the last ones are empty.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores",
            help="As text: score, log-probability (nats) and translation, with tabs between; -inf -inf for n-best "
            "lines that are only there to make up the number.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit code 1 if a line was cut or split.", rich_help_panel=OUTPUT)
    ] = False,
    interactive: Annotated[
        bool,
        typer.Option(
            "--interactive",
            help="Answer each line before the next one is read (always so at a terminal).",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    beam_size: BeamSize = None,
    penalty_form: Penalty = None,
    length_penalty: LengthExponent = None,
    min_length: MinLength = None,
    max_length: MaxLength = None,
    min_length_factor: MinLengthFactor = None,
    max_length_factor: MaxLengthFactor = None,
    max_length_offset: MaxLengthOffset = None,
    max_source_length: MaxSourceLength = None,
    long_lines: Long = None,
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Translate a file, or what comes on standard input: line n of the output translates line n of the input.

    Blank lines stay blank. Text is UTF-8 whatever the locale, and only LF, or CRLF, ends a line.

    seq2seq translate outputs/.../bundle test.de -o test.en

    echo "Ein Hund läuft am Strand." | seq2seq translate outputs/.../bundle --n-best 3 --scores
    """
    overrides = {
        "n_best": n_best,
        "beam_size": beam_size,
        "penalty_form": penalty_form,
        "length_penalty": length_penalty,
        "min_length": min_length,
        "max_length": max_length,
        "min_length_factor": min_length_factor,
        "max_length_factor": max_length_factor,
        "max_length_offset": max_length_offset,
        "max_source_length": max_source_length,
        "long_lines": long_lines,
        "batch_tokens": batch_tokens,
    }
    if scores and format_ is Format.jsonl:
        raise UsageError("--scores is for --format text; jsonl always has the scores")
    translator = load_translator(model, overrides, device, threads)
    wanted = translator.bundle.decode.n_best

    def rows(translation: "Translation") -> list[str]:
        return [as_json(translation)] if format_ is Format.jsonl else as_text(translation, wanted, scores)

    num_notices = run(translator, source, output, rows, interactive)
    if strict and num_notices:
        raise typer.Exit(1)


def load_translator(
    model: str, overrides: dict[str, Any], device: str = "auto", threads: int | None = None
) -> "Translator":
    """The bundle's translator, with the search options that were given in place of the bundle's own.

    Raises:
        ValueError: for options that do not fit together, or an unknown device.
        FileNotFoundError: if there is no bundle.
    """
    use_threads(threads)

    from seq2seq.translator import Translator

    bundle = Translator.load(model, device).bundle
    given = {name: value for name, value in overrides.items() if value is not None}
    return Translator(replace(bundle, decode=replace(bundle.decode, **given)))


def run(
    translator: "Translator",
    source: str,
    output: str | None,
    rows: "Callable[[Translation], list[str]]",
    interactive: bool,
) -> int:
    """Translate `source` to `output`; the number of lines that there was a notice for.

    Raises:
        ValueError: for text that is not UTF-8, or a line that is too long, after what comes before it on stdout.
        FileNotFoundError: for an input file that is not there.
    """
    at_terminal = source == STDIN and sys.stdin.isatty()
    if at_terminal:
        print("One line, one translation; end with Ctrl-D.", file=sys.stderr)
    lines = iter_lines(sys.stdin.buffer, "standard input") if source == STDIN else read_lines(source)
    notices: list[str] = []
    with ExitStack() as stack:
        progress = LineProgress(lines, wanted=output is not None or not sys.stdout.isatty())
        stack.callback(progress.stop)

        def tell(notice: str) -> None:
            notices.append(notice)
            progress.print(f"seq2seq: {notice}")

        translations = translator.stream(lines, read_ahead=not (interactive or at_terminal), on_notice=tell)
        written = (row for translation in progress.follow(translations) for row in rows(translation))
        if output is not None:
            write_lines(output, written)
        else:
            for row in written:
                sys.stdout.buffer.write(row.encode("utf-8") + b"\n")
                sys.stdout.buffer.flush()
    if notices:
        print(f"seq2seq: {len(notices)} of {progress.done} lines were too long, see above", file=sys.stderr)
    return len(notices)


def as_text(translation: "Translation", n_best: int, scores: bool) -> list[str]:
    """`n_best` rows: the translations, best first, then empty ones."""
    rows = [
        f"{candidate.score:.6f}\t{candidate.log_prob:.6f}\t{candidate.text}" if scores else candidate.text
        for candidate in translation.candidates
    ]
    return rows + ["-inf\t-inf\t" if scores else ""] * (n_best - len(rows))


def as_json(translation: "Translation") -> str:
    """The translation as one JSON object."""

    def plain(candidate: "Candidate") -> dict[str, Any]:
        return {
            "text": candidate.text,
            "score": candidate.score,
            "log_prob": candidate.log_prob,
            "tokens": candidate.tokens,
            "ids": candidate.ids,
            "token_log_probs": candidate.token_log_probs,
            "hit_limit": candidate.hit_limit,
        }

    record = {
        "line": translation.line,
        "source": translation.source,
        "source_ids": translation.source_ids,
        "translations": [plain(candidate) for candidate in translation.candidates],
        "notice": translation.notice,
    }
    return json.dumps(record, ensure_ascii=False)
