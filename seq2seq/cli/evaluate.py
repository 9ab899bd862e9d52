"""`seq2seq evaluate`: BLEU, chrF2++ and TER of a file of translations, or of a model on a test set."""

import sys
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2seq.cli import UsageError, translate_ranks
from seq2seq.cli.engines import EngineOptions, bundle_decode
from seq2seq.cli.option_groups import spread
from seq2seq.cli.search_options import SearchOptions
from seq2seq.cli.translate_job import Job
from seq2seq.cli.translate_output import Rows
from seq2seq.config import to_dict
from seq2seq.text.lines import check_place, iter_lines, read_lines, write_lines

if TYPE_CHECKING:
    from seq2seq.evaluation.report import Report, Scoring

STDIN = "-"

FILES = "Files"
SCORING = "Scoring"


class Format(Enum):
    """How the scores are printed."""

    table = "table"
    json = "json"


@dataclass(frozen=True)
class Files:
    """What is read and written, as typed; - is standard input."""

    model: str | None
    hypothesis: str | None
    references: list[str]
    source: str | None
    output: str | None
    paired: str | None


@dataclass(frozen=True)
class Search:
    """How a model translates: fields of `DecodeConfig` that were given, and where it computes."""

    given: dict[str, Any]
    engine: EngineOptions


@spread
def evaluate(
    model: Annotated[str | None, typer.Argument(help="Bundle of the model to evaluate, with --source.")] = None,
    *,
    hypothesis: Annotated[
        str | None, typer.Option(help="Translations to score instead of a model; - is stdin.", rich_help_panel=FILES)
    ] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(help="Raw reference text; several times for several references.", rich_help_panel=FILES),
    ] = None,
    source: Annotated[str | None, typer.Option(help="Text for the model to translate.", rich_help_panel=FILES)] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Keep the model's translations here.", rich_help_panel=FILES)
    ] = None,
    paired: Annotated[
        str | None,
        typer.Option(
            help="Another system's translations: is the difference from it more than chance? (paired bootstrap)",
            rich_help_panel=FILES,
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="bleu, chrf or ter; several times for several (default: all).", rich_help_panel=SCORING),
    ] = None,
    target_lang: Annotated[
        str | None,
        typer.Option(help="Language code that chooses BLEU's tokenizer: zh, ja, ko, ...", rich_help_panel=SCORING),
    ] = None,
    tokenize: Annotated[
        str | None, typer.Option(help="BLEU's tokenizer, by sacreBLEU's name.", rich_help_panel=SCORING)
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.", rich_help_panel=SCORING)] = False,
    confidence: Annotated[
        bool,
        typer.Option("--confidence", help="95 % confidence intervals (bootstrap, seed said).", rich_help_panel=SCORING),
    ] = False,
    resamples: Annotated[
        int, typer.Option(help="Bootstrap resamples for --confidence and --paired.", rich_help_panel=SCORING)
    ] = 1000,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse text that looks tokenised (exit code 1).", rich_help_panel=SCORING),
    ] = False,
    format_: Annotated[
        Format, typer.Option("--format", help="What to print on stdout.", rich_help_panel=SCORING)
    ] = Format.table,
    search: SearchOptions,
    engine: EngineOptions,
) -> None:
    """Score translations: those in a file, or those that a model gives for a test set.

    seq2seq evaluate --hypothesis mine.txt --reference test.en

    seq2seq evaluate outputs/.../bundle --source test.de --reference test.en
    """
    from seq2seq.evaluation.report import Scoring

    if translate_ranks.follows():
        raise typer.Exit(translate_ranks.follow(engine))
    files = Files(model, hypothesis, reference or [], source, output, paired)
    scoring = Scoring(
        metric or ["bleu", "chrf", "ter"], target_lang, tokenize, lowercase, confidence, resamples, strict
    )
    wanted = Search(search.given(), engine)
    check_usage(files, wanted)
    report = run(files, scoring, wanted)
    print(report.as_json() if format_ is Format.json else report.as_table())


def check_usage(files: Files, search: Search) -> None:
    """Refuse options that do not go together.

    Raises:
        UsageError: saying which, and what to type.
    """
    if (files.model is None) == (files.hypothesis is None):
        raise UsageError(
            "give either --hypothesis FILE (translations to score) or a model and --source FILE (text to translate), "
            f"got {'neither' if files.model is None else 'both'}"
        )
    if not files.references:
        raise UsageError("--reference is missing; give the raw reference text, --reference FILE")
    if files.model is not None and files.source is None:
        raise UsageError(
            "a model needs text to translate; give --source FILE (to score a file of translations: --hypothesis FILE)"
        )
    if files.hypothesis is not None:
        untouched = asdict(EngineOptions())
        idle = [name for name in ("source", "output") if getattr(files, name) is not None]
        idle += [*search.given, *(name for name, value in asdict(search.engine).items() if value != untouched[name])]
        if idle:
            raise UsageError(f"{', '.join(idle)}: only of use with a model, but --hypothesis was given")
    read = [files.hypothesis, files.source, files.paired, *files.references]
    if read.count(STDIN) > 1:
        raise UsageError(f"standard input ({STDIN}) can be read only once, but stands for {read.count(STDIN)} files")


def run(files: Files, scoring: "Scoring", search: Search) -> "Report":
    """The scores; whatever can be refused is refused before a model starts on its work.

    Raises:
        ValueError: for files that do not belong together, unknown options, or with `strict` tokenised text.
        FileNotFoundError: for a file or model that is not there.
    """
    from seq2seq.bundle import read_config
    from seq2seq.evaluation.metrics import build_metrics
    from seq2seq.evaluation.report import make_report

    first = files.hypothesis if files.source is None else files.source
    assert first is not None, "check_usage lets neither pass"
    if files.output is not None:
        check_place(files.output)
    lines = _read(first)
    references = [_read(name, beside=(first, lines)) for name in files.references]
    baseline = None if files.paired is None else _read(files.paired, beside=(first, lines))
    job = None
    if files.model is not None:
        search.engine.check()
        decode = bundle_decode(files.model, {**search.given, "n_best": 1})
        job = Job(files.model, search.engine, decode, Rows())
        if scoring.target_lang is None:
            scoring = replace(scoring, target_lang=read_config(files.model)["target_lang"])
    build_metrics(
        scoring.metrics, target_lang=scoring.target_lang, tokenize=scoring.tokenize, lowercase=scoring.lowercase
    )
    warnings = _check_references(files, references, scoring)
    if job is not None:
        lines, notices = _translate(job, lines)
        warnings += notices
        if files.output is not None:
            write_lines(files.output, lines)
    name = "the model's output" if files.hypothesis is None else files.hypothesis
    warnings += _tell(_tokenized(name, lines, scoring))
    return make_report(
        lines,
        references,
        scoring,
        baseline=baseline,
        files=asdict(files),
        decode=None if job is None else to_dict(job.decode),
        warnings=warnings,
    )


def _read(name: str, beside: tuple[str, list[str]] | None = None) -> list[str]:
    """The lines of a file or of standard input, as many as those of the file `beside` it."""
    lines = list(iter_lines(sys.stdin.buffer, "standard input")) if name == STDIN else read_lines(name)
    if not lines:
        raise ValueError(f"{name} is empty; expected one sentence a line")
    if beside is not None and len(lines) != len(beside[1]):
        raise ValueError(
            f"{name} has {len(lines)} lines, but {beside[0]} has {len(beside[1])}; line n of both must be the same "
            "sentence"
        )
    return lines


def _translate(job: Job, lines: list[str]) -> tuple[list[str], list[str]]:
    """The translations, and what the user has been told about them."""
    from seq2seq.translator import Request

    found = list(job.answers(Request(line) for line in lines))
    notices = _tell([answer.notice for answer in found if answer.notice is not None])
    num_cut = sum(answer.hit_limit for answer in found)
    if num_cut:
        notices += _tell([f"{num_cut} of {len(found)} translations were ended at their length limit (max_length)"])
    return [answer.rows[0] for answer in found], notices


def _check_references(files: Files, references: list[list[str]], scoring: "Scoring") -> list[str]:
    """Warnings about the references, which have been told already."""
    from seq2seq.evaluation.text_checks import reference_warnings
    from seq2seq.text.bleu_tokenizer import bleu_tokenizer

    tokenizer = bleu_tokenizer(scoring.target_lang, scoring.tokenize)
    warnings = []
    for name, lines in zip(files.references, references, strict=True):
        warnings += _tokenized(name, lines, scoring)
        warnings += reference_warnings(name, lines, tokenizer=tokenizer)
    return _tell(warnings)


def _tokenized(name: str, lines: list[str], scoring: "Scoring") -> list[str]:
    """A warning if the text looks tokenised, which is an error under --strict."""
    from seq2seq.evaluation.text_checks import tokenized_warning

    warning = tokenized_warning(name, lines)
    if warning is not None and scoring.strict:
        raise ValueError(f"{warning} (refused because of --strict)")
    return [] if warning is None else [warning]


def _tell(warnings: list[str]) -> list[str]:
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return warnings
