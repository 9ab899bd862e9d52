"""`seq2seq diagnose`: what is wrong with a model's translations of a test set, and which search options would help."""

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2seq.cli import UsageError
from seq2seq.cli.machine import use_threads
from seq2seq.cli.search_options import BatchTokens, BeamSize, Device, LengthExponent, Long, Penalty, Threads
from seq2seq.text.lines import read_lines

if TYPE_CHECKING:
    from seq2seq.cli.diagnose_report import Diagnosis, Line, Swept
    from seq2seq.config import DecodeConfig
    from seq2seq.translator import Translator

WHAT = "What is looked at"

NAME = 50
"""Characters of the model's name in the picture, its end."""

BEAM_SIZES = "1,2,4,8,16"
LENGTH_PENALTIES = "0,0.6,1,1.4"


class Format(Enum):
    """How the diagnosis is printed."""

    text = "text"
    json = "json"


def diagnose(
    model: Annotated[str, typer.Argument(help="Bundle of the model.", show_default=False)],
    src: Annotated[str, typer.Option("--src", help="Text to translate, one sentence a line.", show_default=False)],
    ref: Annotated[str, typer.Option("--ref", help="Its translations by people.", show_default=False)],
    lines: Annotated[
        int | None, typer.Option("--lines", help="A sample of so many lines. Default: all.", rich_help_panel=WHAT)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the sample.", rich_help_panel=WHAT)] = 1,
    beams: Annotated[str, typer.Option(help="Beam sizes of the sweep.", rich_help_panel=WHAT)] = BEAM_SIZES,
    penalties: Annotated[
        str, typer.Option(help="Length penalties of the sweep.", rich_help_panel=WHAT)
    ] = LENGTH_PENALTIES,
    examples: Annotated[int, typer.Option(help="Lines shown of each kind.", rich_help_panel=WHAT)] = 3,
    figure: Annotated[
        str | None, typer.Option(help="A picture of the sweep too: .png, .svg or .pdf.", rich_help_panel=WHAT)
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="What to print on stdout.", rich_help_panel=WHAT)] = (
        Format.text
    ),
    beam_size: BeamSize = None,
    penalty_form: Penalty = None,
    length_penalty: LengthExponent = None,
    long_lines: Long = None,
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Look for search errors and for translations that look wrong, and sweep beam sizes and length penalties.

    A search error is a line whose reference, or whose greedy translation, the model gives a higher score than what the
    search has found.

    seq2seq diagnose outputs/.../bundle --src test.de --ref test.en --figure sweep.png
    """
    for name, number in (("--lines", lines), ("--examples", examples)):
        if number is not None and number < (1 if name == "--lines" else 0):
            raise UsageError(f"{name} {number} is out of range; give at least {1 if name == '--lines' else 0}")
    sizes, exponents = numbers("--beams", beams, int, 1, 1000), numbers("--penalties", penalties, float, -20, 20)
    if figure is not None:
        from seq2seq.inspection.picture import check_picture

        check_picture(figure)
    chosen = choose_lines(src, ref, lines, seed)
    use_threads(threads)

    from seq2seq.cli.diagnose_report import as_json, as_text
    from seq2seq.translator import Translator

    translator = Translator.load(model, device)
    overrides = {
        "beam_size": beam_size,
        "penalty_form": penalty_form,
        "length_penalty": length_penalty,
        "long_lines": long_lines,
        "batch_tokens": batch_tokens,
    }
    decode = searching(
        translator.bundle.decode, {name: value for name, value in overrides.items() if value is not None}
    )
    found = run(translator, decode, chosen, sizes, exponents, model)
    if figure is not None:
        draw(found, figure)
    print(as_json(found, examples) if format_ is Format.json else as_text(found, examples))


def numbers(option: str, typed: str, kind: Callable[[str], Any], smallest: int, largest: int) -> list[Any]:
    """The distinct numbers of a list with commas, in ascending order.

    Raises:
        UsageError: if it is something else, or one of them is not between the smallest and the largest.
    """
    try:
        found = sorted({kind(part) for part in typed.split(",")})
    except ValueError:
        raise UsageError(f"{option} {typed} is not a list of numbers with commas between, such as 1,2,4") from None
    if not all(smallest <= number <= largest for number in found):  # NaN is not either
        raise UsageError(
            f"{option} {typed} has a number that is out of range; give numbers from {smallest} to {largest}"
        )
    return found


def choose_lines(src: str, ref: str, count: int | None, seed: int) -> "list[Line]":
    """The lines of both files, or a sample of them in their order.

    Raises:
        ValueError: if the files are empty or have different numbers of lines.
        FileNotFoundError: if one is not there.
    """
    from seq2seq.cli.diagnose_report import Line

    sources, references = read_lines(src), read_lines(ref)
    if len(sources) != len(references):
        raise ValueError(
            f"{src} has {len(sources)} lines but {ref} has {len(references)}; expected the same number, as line n of "
            "one translates line n of the other"
        )
    if not sources:
        raise ValueError(f"{src} is empty; expected one sentence a line")
    places: Sequence[int] = range(len(sources))
    if count is not None and count < len(sources):
        places = sorted(random.Random(seed).sample(places, count))
    return [Line(place + 1, sources[place], references[place]) for place in places]


def searching(decode: "DecodeConfig", given: dict[str, Any]) -> "DecodeConfig":
    """The bundle's options with those that were given, for one translation a line that is searched for.

    Raises:
        ValueError: if the options do not fit together.
    """
    from seq2seq.translator.doctor import searched

    beam_size = given.get("beam_size", decode.beam_size)
    return replace(searched(decode, beam_size), **({"long_lines": decode.long_lines} | given))


def run(
    translator: "Translator",
    decode: "DecodeConfig",
    lines: "Sequence[Line]",
    sizes: Sequence[int],
    exponents: Sequence[float],
    model: str,
) -> "Diagnosis":
    """Everything that is measured. The options in use are swept too.

    Raises:
        ValueError: if a line is too long.
    """
    from seq2seq.cli.diagnose_report import Diagnosis
    from seq2seq.translator import diagnosis
    from seq2seq.translator.faults import find_faults

    sizes = sorted({*sizes, decode.beam_size})
    exponents = sorted({*exponents, decode.length_penalty})
    sources, references = [line.source for line in lines], [line.reference for line in lines]
    total = len(lines) * (decode.beam_size + 2 + sum(sizes) * len(exponents))
    with _progress(total) as advance:
        advance("translating", 0)
        answers = translator.translate(sources, decode, on_notice=_tell)
        advance("greedy search", len(lines) * decode.beam_size)
        errors = {}
        if diagnosis.is_plain(decode):
            errors["greedy"] = diagnosis.greedy_errors(translator, answers, decode)
            advance("references", len(lines))
            errors["reference"] = diagnosis.reference_errors(translator, answers, references, decode)
        faults = find_faults(diagnosis.sentences(translator.bundle, answers, references))
        language = translator.bundle.languages[1]
        swept = []
        for point in diagnosis.sweep(translator.bundle, sources, decode, sizes, exponents):
            swept.append(_swept(point, references, language))
            advance(f"beam {point.beam_size}, penalty {point.length_penalty:g}", len(lines) * point.beam_size)
    texts = [answer.text for answer in answers]
    bleu = _bleu(texts, references, language)
    return Diagnosis(model, decode, lines, texts, bleu, errors, faults, swept)


def _swept(point: Any, references: Sequence[str], language: str | None) -> "Swept":
    from seq2seq.cli.diagnose_report import Swept
    from seq2seq.text.lines import is_blank

    return Swept(
        point.beam_size,
        point.length_penalty,
        _bleu(point.texts, references, language),
        point.num_searched,
        sum(map(is_blank, point.texts)),
    )


def _bleu(texts: Sequence[str], references: Sequence[str], language: str | None) -> Any:
    from seq2seq.evaluation import corpus_scores

    return corpus_scores(texts, [references], metrics=["bleu"], target_lang=language)[0]


def draw(found: "Diagnosis", figure: str) -> None:
    """Write the picture of the sweep."""
    from seq2seq.inspection.sweep_picture import Measured, sweep_picture

    points = [Measured(one.beam_size, one.length_penalty, one.bleu.score, one.length_ratio) for one in found.sweep]
    model = found.model if len(found.model) <= NAME else "…" + found.model[1 - NAME :]
    heading = f"{model}: beam sizes and length penalties ({found.penalty_form}) on {len(found.lines)} lines"
    canvas = sweep_picture(points, heading, found.bleu.signature, (found.decode.beam_size, found.decode.length_penalty))
    width, height = canvas.save(figure)
    _tell(f"wrote {figure}, {width} x {height} points")


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str, int], None]]:
    """A bar on standard error, if that is a terminal; told what is done next, and how much has been done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    bar = Progress(
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        disable=not sys.stderr.isatty(),
    )
    task = bar.add_task("", total=total)

    def advance(doing: str, done: int) -> None:
        bar.update(task, description=doing, advance=done)

    with bar:
        yield advance


def _tell(text: str) -> None:
    print(f"seq2seq: {text}", file=sys.stderr)
