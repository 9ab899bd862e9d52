"""`seq2seq translate`: lines of text in, their translations out, in order and N for N."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Annotated

import typer

from seq2seq.cli import UsageError
from seq2seq.cli.engines import EngineOptions, bundle_decode
from seq2seq.cli.line_progress import LineProgress
from seq2seq.cli.option_groups import spread
from seq2seq.cli.search_options import SearchOptions
from seq2seq.cli.translate_inputs import STDIN, LineFiles, requests
from seq2seq.cli.translate_job import Answer, Job
from seq2seq.cli.translate_output import Format, Rows
from seq2seq.text.lines import check_place, write_lines

OUTPUT = "Output"


@spread
def translate(
    model: Annotated[str, typer.Argument(help="Bundle of the model.", show_default=False)],
    source: Annotated[
        str, typer.Argument(metavar="[INPUT]", help="Text, one segment a line, plain or .gz; - is standard input.")
    ] = STDIN,
    *,
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
    search: SearchOptions,
    files: LineFiles,
    engine: EngineOptions,
) -> None:
    """Translate a file, or what comes on standard input: line n of the output translates line n of the input.

    Blank lines stay blank. Text is UTF-8 whatever the locale, and only LF, or CRLF, ends a line.

    seq2seq translate outputs/.../bundle test.de -o test.en

    echo "Ein Hund läuft am Strand." | seq2seq translate outputs/.../bundle --n-best 3 --scores
    """
    if scores and format_ is not Format.text:
        raise UsageError(f"--scores is for --format text, got {format_.name}; jsonl always has the scores")
    engine.check()
    if output is not None:
        check_place(output)
    total = files.check(source)
    typed = {"n_best": n_best, "ordered_phrases": files.ordered_phrases}
    given = search.given() | {name: value for name, value in typed.items() if value is not None}
    decode = bundle_decode(model, given)
    job = Job(model, engine, decode, Rows(format_, decode.n_best, scores))
    num_notices = run(job, source, files, output, interactive=interactive, total=total)
    if strict and num_notices:
        raise typer.Exit(1)


def run(job: Job, source: str, files: LineFiles, output: str | None, *, interactive: bool, total: int | None) -> int:
    """Translate `source` to `output`; the number of lines that there was a notice for.

    Raises:
        ValueError: for text that is not UTF-8, or a line that is too long, after what comes before it on stdout.
        FileNotFoundError: for an input file that is not there.
    """
    at_terminal = source == STDIN and sys.stdin.isatty()
    interactive = interactive or at_terminal
    if interactive and job.engine.devices > 1:
        raise UsageError(
            f"--devices {job.engine.devices} shares out many lines, but each is to be answered before the next one is "
            "read (--interactive, or a terminal); leave --devices out"
        )
    found = job.answers(requests(source, files), read_ahead=not interactive)
    if at_terminal:
        print("One line, one translation; end with Ctrl-D.", file=sys.stderr)
    with ExitStack() as stack:
        stack.callback(found.close)  # before an error is told, so that no process is left then
        progress = LineProgress(total, wanted=output is not None or not sys.stdout.isatty())
        stack.callback(progress.stop)
        told = Told(progress)
        written = (row for answer in told.follow(found) for row in answer.rows)
        if output is not None:
            write_lines(output, written)
        else:
            for row in written:
                sys.stdout.buffer.write(row.encode("utf-8") + b"\n")
                sys.stdout.buffer.flush()
    if told.notices:
        print(f"seq2seq: {told.notices} of {progress.done} lines were too long, see above", file=sys.stderr)
    return told.notices


class Told:
    """Tells people about the answers that pass by: how many there are, and what has been done about lines.

    Args:
        progress: Where it is told.
    """

    def __init__(self, progress: LineProgress) -> None:
        self.notices = 0
        self._progress = progress

    def follow(self, found: Iterable[Answer]) -> Iterator[Answer]:
        """The same answers."""
        for answer in self._progress.follow(found):
            if answer.notice is not None:
                self.notices += 1
                self._progress.print(f"seq2seq: {answer.notice}")
            yield answer
