"""`seq2seq inspect attention`: heat maps of who looks at whom, for one sentence."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2seq.cli import UsageError
from seq2seq.cli.search_options import Device
from seq2seq.config import GenerateConfig, LongLines, Task
from seq2seq.text.lines import check_place, is_blank, write_lines

if TYPE_CHECKING:
    from seq2seq.bundle import Bundle
    from seq2seq.inspection.attention import Attention, Chosen

WHAT = "What is shown"
PICTURE = "Picture"


class Format(Enum):
    """What comes out."""

    picture = "picture"
    json = "json"


class Kinds(Enum):
    """Which attention is shown."""

    encoder = "encoder"
    decoder = "decoder"
    cross = "cross"
    all = "all"


def attention(
    model: Annotated[str, typer.Argument(help="Bundle of the model.", show_default=False)],
    src: Annotated[
        str,
        typer.Option("--src", help="The sentence to translate; for a language model, the text.", show_default=False),
    ],
    tgt: Annotated[
        str | None,
        typer.Option(
            "--tgt",
            help="Its translation (forced); for a language model what follows the text, spaces included. Default: "
            "what the model finds.",
        ),
    ] = None,
    beam: Annotated[int, typer.Option("--beam-size", "--beam", help="To find it with; 1 is greedy search.")] = 1,
    max_new: Annotated[int, typer.Option("--max-new", help="Most pieces that a language model adds to the text.")] = 20,
    kind: Annotated[
        Kinds,
        typer.Option(
            help="encoder: source to source. decoder: target to target; in a decoder-only model the whole row. cross: "
            "target to source.",
            rich_help_panel=WHAT,
        ),
    ] = Kinds.all,
    layer: Annotated[
        list[int] | None, typer.Option(help="Only this one, counted from 1; may be repeated.", rich_help_panel=WHAT)
    ] = None,
    head: Annotated[
        list[int] | None, typer.Option(help="Only this one, counted from 1; may be repeated.", rich_help_panel=WHAT)
    ] = None,
    average: Annotated[
        bool, typer.Option("--average", help="Only the means over heads and layers.", rich_help_panel=WHAT)
    ] = False,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="File to write: .png, .svg or .pdf.", rich_help_panel=PICTURE),
    ] = None,
    format_: Annotated[
        Format,
        typer.Option(
            "--format", help="json: the weights with their pieces, on stdout or in -o.", rich_help_panel=PICTURE
        ),
    ] = Format.picture,
    font: Annotated[
        Path | None,
        typer.Option(help="A font file for scripts that no installed font has.", rich_help_panel=PICTURE),
    ] = None,
    dpi: Annotated[int | None, typer.Option(help="Points for each inch.", rich_help_panel=PICTURE)] = None,
    device: Device = "auto",
) -> None:
    """Draw the attention weights of every layer and head, and their means, for one sentence.

    Rows look (queries), columns are looked at (keys); each row sums to 1. In the maps from target to source a row has
    the name of the piece that is predicted there.

    seq2seq inspect attention outputs/.../bundle --src "Ein Hund läuft." -o attention.png

    seq2seq inspect attention outputs/.../bundle --src "Ein Hund läuft." --kind cross --average -o alignment.svg
    """
    from seq2seq.bundle import load_bundle
    from seq2seq.inspection.attention import Kind, as_data, choose
    from seq2seq.inspection.picture import check_picture
    from seq2seq.nn.device import find_device

    _check_usage(src, tgt, beam, max_new, dpi)
    if format_ is Format.picture:
        if output is None:
            raise UsageError("give the picture's name, -o attention.png (or .svg, .pdf); or --format json")
        check_picture(output)
    elif output is not None:
        check_place(output)
    bundle = load_bundle(model, find_device(device))
    if bundle.task is Task.language_model:
        attentions, how = _of_text(bundle, src, tgt, beam, max_new)
    else:
        attentions, how = _of_pair(bundle, src, tgt, beam)
    kinds = [] if kind is Kinds.all else [Kind[kind.name]]
    chosen = choose(attentions, kinds=kinds, layers=layer or [], heads=head or [], averages_only=average)
    if format_ is Format.picture:
        assert output is not None
        _draw(chosen, output, how, font, dpi)
        return
    text = json.dumps(as_data(chosen, how), ensure_ascii=False)
    if output is None:
        print(text)
    else:
        write_lines(output, [text])


def _check_usage(src: str, tgt: str | None, beam: int, max_new: int, dpi: int | None) -> None:
    """Refuse options that mean nothing.

    Raises:
        UsageError: saying which, and what to type.
    """
    for name, text in (("--src", src), ("--tgt", tgt)):
        if text is not None and is_blank(text):
            raise UsageError(f"{name} has nothing in it to look at; give a sentence")
    for name, number in (("--beam", beam), ("--max-new", max_new), ("--dpi", dpi)):
        if number is not None and number < 1:
            raise UsageError(f"{name} {number} is not positive; give at least 1")
    if tgt is not None and beam != 1:
        raise UsageError(f"--beam {beam} is for finding a target, but --tgt gives one; leave one of them out")


def _of_pair(bundle: "Bundle", src: str, tgt: str | None, beam: int) -> "tuple[list[Attention], str]":
    """The attention over a sentence and its translation, and where that comes from."""
    from seq2seq.inspection.attention import attention_of_pair
    from seq2seq.translator import Translator

    decode = replace(bundle.decode, beam_size=beam, n_best=1, long_lines=LongLines.error)
    if tgt is None:
        answer = Translator(bundle).translate([src], decode)[0]
        if not answer.source_ids:
            raise ValueError("the tokenizer leaves nothing of --src; give text that it knows")
        source, target = answer.source_ids[0], answer.candidates[0].ids
        how = _search(beam)
        cut = " (ended at its length limit)" if answer.hit_limit else ""
        _tell(f"{how}{cut}: {answer.text}")
    else:
        source = (*bundle.source_tokenizer.encode(src), bundle.source_tokenizer.special.eos)
        target = (*bundle.target_tokenizer.encode(tgt), bundle.target_tokenizer.special.eos)
        how = "given"
    return attention_of_pair(bundle, source, target), how


def _of_text(bundle: "Bundle", src: str, tgt: str | None, beam: int, max_new: int) -> "tuple[list[Attention], str]":
    """The attention of a language model over a text and what follows, and where that comes from."""
    from seq2seq.generator import Ended, Generator
    from seq2seq.inspection.attention import attention_of_text

    if tgt is not None:
        return attention_of_text(bundle, bundle.target_tokenizer.prompt(src + tgt)), "given"
    config = GenerateConfig(max_new_pieces=max_new, beam_size=beam)
    (answer,) = Generator(bundle).generate([src], config, on_notice=_tell)
    cut = f" (the first {max_new} pieces)" if answer.ended is Ended.limit else ""
    _tell(f"{_search(beam)}{cut}: {json.dumps(answer.text, ensure_ascii=False)}")
    return attention_of_text(bundle, [*answer.prompt_ids, *answer.ids]), _search(beam)


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


def _search(beam: int) -> str:
    return "greedy" if beam == 1 else f"beam {beam}"


def _draw(chosen: "Sequence[Chosen]", output: str, how: str, font: Path | None, dpi: int | None) -> None:
    """Write the picture, and say what the reader of it should know."""
    from seq2seq.inspection.attention_picture import attention_picture
    from seq2seq.inspection.picture import DPI
    from seq2seq.inspection.picture_fonts import choose_fonts

    pieces = {piece for one in chosen for piece in (*one.attention.queries, *one.attention.keys)}
    fonts = choose_fonts(pieces, font)
    width, height = attention_picture(chosen, fonts, how).save(output, dpi or DPI)
    for note in fonts.notes:
        _tell(f"note: {note}")
    _tell(f"wrote {output}, {width} x {height} points")
