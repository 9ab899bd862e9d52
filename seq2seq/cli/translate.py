"""`seq2seq translate`: lines of text in, their translations out, in order and N for N."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from seq2seq.cli import UsageError, translate_ranks
from seq2seq.cli.engines import EngineOptions, bundle_decode
from seq2seq.cli.line_progress import LineProgress
from seq2seq.cli.option_groups import spread
from seq2seq.cli.search_options import SearchOptions
from seq2seq.cli.translate_checks import check_alignment, check_backend, check_lines, check_phrases
from seq2seq.cli.translate_inputs import STDIN, LineFiles, requests
from seq2seq.cli.translate_job import Answer, Answers, Job
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
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="With -o: keep what is done in OUTPUT.part; the same command goes on there after a stop of any kind.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    format_: Annotated[
        Format,
        typer.Option(
            "--format",
            help="text: one translation a line. jsonl: an object a line of input, with pieces, ids and scores; "
            "`seq2seq score --jsonl` reads it. pharaoh: one word alignment a line, such as 0-0 1-2.",
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
    alignments: Annotated[
        bool,
        typer.Option(
            "--alignments",
            help="With --format jsonl: what each piece is aligned to, softly, and pieces and words that are linked.",
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
    if alignments and format_ is Format.text:
        raise UsageError("--alignments is for --format jsonl, or pharaoh for the links of words alone, got text")
    if translate_ranks.follows():
        raise typer.Exit(translate_ranks.follow(engine))
    engine.check()
    if output is not None:
        check_place(output)
    total = files.check(source)
    aligned = True if alignments or format_ is Format.pharaoh else None
    typed = {"n_best": n_best, "ordered_phrases": files.ordered_phrases, "alignments": aligned}
    given = search.given() | {name: value for name, value in typed.items() if value is not None}
    decode = bundle_decode(model, given)
    job = Job(model, engine, decode, Rows(format_, decode.n_best, scores))
    at_terminal = source == STDIN and sys.stdin.isatty()
    interactive = interactive or at_terminal
    if resume and (output is None or interactive or not files.can_be_read_again(source)):
        raise UsageError(
            "--resume goes on with a file that is read and one that is written; give INPUT, no pipe, and -o OUTPUT, "
            "and leave --interactive out"
        )
    if interactive and engine.devices > 1:
        raise UsageError(
            f"--devices {engine.devices} shares out many lines, but with --interactive, or at a terminal, each is "
            "answered before the next one is read; leave one of the two out"
        )
    if interactive and translate_ranks.is_one_of_several():
        raise UsageError(
            "with --interactive, or at a terminal, each line is answered before the next one is read, so that several "
            "processes have nothing to share; start one without torchrun"
        )
    check_alignment(search, job)
    check_phrases(job, files)
    check_backend(job, files)
    check_lines(job, source, files, total)
    if resume:
        num_notices = run_on(job, source, files, str(output), total)
    else:
        num_notices = run(job, source, files, output, interactive=interactive, total=total)
    if strict and num_notices:
        raise typer.Exit(1)


def run(job: Job, source: str, files: LineFiles, output: str | None, *, interactive: bool, total: int | None) -> int:
    """Translate `source` to `output`; the number of lines that there was a notice for.

    Raises:
        ValueError: for what is wrong with a line of standard input, after what comes before it on stdout, or if the
            input has changed meanwhile.
        FileNotFoundError: for an input file that is not there.
    """
    found = job.answers(requests(source, files), read_ahead=not interactive)
    if source == STDIN and sys.stdin.isatty():
        print("One line, one translation; end with Ctrl-D.", file=sys.stderr)
    with told(found, total, source, wanted=output is not None or not sys.stdout.isatty()) as teller:
        written = (row for answer in teller for row in answer.rows)
        if output is not None:
            write_lines(output, written)
        else:
            for row in written:
                sys.stdout.buffer.write(row.encode("utf-8") + b"\n")
                sys.stdout.buffer.flush()
    return teller.notices


def run_on(job: Job, source: str, files: LineFiles, output: str, total: int | None) -> int:
    """Translate what has not been translated yet; the number of lines of all that there was a notice for.

    Raises:
        ValueError: if the input, the model or the options have changed, or what `run` refuses.
        FileNotFoundError: for an input file that is not there.
    """
    from seq2seq.cli.translate_resume import PartialOutput, options_of

    partial = PartialOutput(output, options_of(job, files.terms))
    if partial.complete:
        partial.clear()
        print(f"seq2seq: {output} was complete already", file=sys.stderr)
        return partial.notices
    with partial:
        if partial.lines:
            print(f"seq2seq: {partial.lines} of {total} lines were translated already", file=sys.stderr)
        before = partial.notices
        lines = partial.remaining(requests(source, files), source)
        found = job.answers(lines, first=partial.lines + 1)
        left = None if total is None else total - partial.lines
        try:
            with told(found, left, source, wanted=True) as teller:
                for answer in teller:
                    partial.write(answer)
        except KeyboardInterrupt:
            if partial.committed:
                print(f"seq2seq: stopped; the same command goes on with {partial.part}", file=sys.stderr)
            raise
        partial.finish()
    return before + teller.notices


@contextmanager
def told(found: Answers, total: int | None, source: str, *, wanted: bool) -> "Iterator[Teller]":
    """Tells people about answers that pass by while the block runs, and sees to it that none is worked on afterwards.

    Args:
        found: The answers.
        total: How many there will be, if that is known.
        source: Where the lines come from.
        wanted: Whether there may be a bar.
    """
    progress = LineProgress(total, wanted=wanted)
    teller = Teller(found, progress, total, source)
    try:
        yield teller
    finally:
        found.close()
        progress.stop()
    if teller.notices:
        print(f"seq2seq: {teller.notices} of {progress.done} lines were too long, see above", file=sys.stderr)


class Teller:
    """Answers that pass by, and how many lines there was a notice for.

    Args:
        found: The answers.
        progress: Where it is told.
        total: How many there will be, if that is known.
        source: Where the lines come from.
    """

    def __init__(self, found: Answers, progress: LineProgress, total: int | None, source: str) -> None:
        self.notices = 0
        self._found, self._progress = found, progress
        self._total, self._source = total, source

    def __iter__(self) -> Iterator[Answer]:
        """The answers.

        Raises:
            ValueError: in the end, if there were more or fewer than was known.
        """
        for answer in self._progress.follow(self._found):
            if answer.notice is not None:
                self.notices += 1
                self._progress.print(f"seq2seq: {answer.notice}")
            yield answer
        if self._total not in (None, self._progress.done):
            raise ValueError(
                f"{self._source} had {self._total} lines left to translate when this began, and {self._progress.done} "
                "came; it must not change meanwhile"
            )
