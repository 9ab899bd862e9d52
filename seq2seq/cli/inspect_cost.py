"""`seq2seq inspect cost`: parameters, multiply-adds, bytes of the cache, memory of training, each with its formula."""

import dataclasses
import json
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2seq.cli import UsageError
from seq2seq.cli.inspect_model import HELP, VOCAB_HELP, Subject, check_source, find_model, sizes
from seq2seq.cli.inspect_shapes import legend
from seq2seq.cli.inspect_tables import Format, Grid, markdown, show

if TYPE_CHECKING:
    from seq2seq.inspection.cost import Cache, Part, PerToken, Sizes
    from seq2seq.inspection.memory import MemoryPart

LENGTH = 128
"""Positions, unless told otherwise."""


class CachePrecision(Enum):
    """Number format of cached keys and values."""

    fp32 = "fp32"
    bf16 = "bf16"
    fp16 = "fp16"
    int8 = "int8"


def cost(
    model: Annotated[str, typer.Argument(metavar="MODEL_OR_CONFIG", help=HELP, show_default=False)],
    batch: Annotated[int, typer.Option(help="Sentences B.", min=1)] = 1,
    length: Annotated[
        int | None,
        typer.Option(help=f"Source and target pieces, S = T (default {LENGTH}).", min=1, show_default=False),
    ] = None,
    src: Annotated[
        int | None,
        typer.Option(
            help="Source pieces S. A decoder-only model reads plain text of T pieces unless this is given.",
            min=0,
            show_default=False,
        ),
    ] = None,
    tgt: Annotated[int | None, typer.Option(help="Target pieces T.", min=1, show_default=False)] = None,
    precision: Annotated[
        CachePrecision,
        typer.Option(help="Of keys and values in the cache. This package keeps them as the weights are."),
    ] = CachePrecision.fp32,
    vocab_size: Annotated[int | None, typer.Option(help=VOCAB_HELP, min=1, show_default=False)] = None,
    format_: Annotated[Format, typer.Option("--format", help="What to print on stdout.")] = Format.table,
) -> None:
    """Count what a model costs, without building it: each number with the formula that gives it.

    Parameters by part, tied ones once; multiply-adds of matrix products in a
    pass, in a decode step and against length; bytes of the cache; and an
    estimate of the memory of training in float32: weights, gradients, Adam's
    moments, activations, logits. It leaves out torch itself (about 300 MB)
    and what single operations need. Measured on a CPU it is within 15% of
    what is allocated, but the process grows by up to 43% more than it says,
    as freed memory is not all given back.
    """
    subject = find_model(model, vocab_size)
    given = _sizes(subject, batch, length, src, tgt)
    if format_ is Format.json:
        print(json.dumps({"model": model, **as_json(given, precision.name)}, ensure_ascii=False, indent=2))
        return
    told, grids = " · ".join(_legend(given)), tables(given, precision.name)
    if format_ is Format.markdown:
        print("\n".join([f"# {model}", "", told, "", *markdown(grids)]))
        return
    from rich.console import Console

    console = Console(highlight=False, emoji=False)
    console.print(f"\n{model}", style="bold", markup=False)
    console.print(told, markup=False)
    show(grids)


def _sizes(subject: Subject, batch: int, length: int | None, src: int | None, tgt: int | None) -> "Sizes":
    """What the model is given, from what was typed."""
    from seq2seq.config import PositionKind
    from seq2seq.nn.positions import check_positions

    if length is not None and (src is not None or tgt is not None):
        raise UsageError("--length sets source and target; give it, or --src and --tgt")
    usual = length if length is not None else LENGTH
    source = src if src is not None else 0 if subject.decoder_only else usual
    check_source(subject, source)
    given = sizes(subject, batch=batch, source=source, target=tgt if tgt is not None else usual)
    if subject.config.positions is PositionKind.learned and subject.config.max_positions is not None:
        check_positions(max(given.row, 0 if subject.decoder_only else source), subject.config.max_positions)
    return given


def lengths(given: "Sizes") -> list[int]:
    """A quarter of the target's length, half of it, itself, twice, four times; as far as learned positions go."""
    wanted = [given.target // 4, given.target // 2, given.target, 2 * given.target, 4 * given.target]
    most = given.config.max_positions if given.config.positions.name == "learned" else None
    return sorted({length for length in wanted if length >= 1 and (most is None or length <= most)})


def as_json(given: "Sizes", precision: str) -> dict[str, Any]:
    """All numbers as plain builtins."""
    from seq2seq.inspection import cost as costs
    from seq2seq.inspection.memory import training_memory

    parts, kept = costs.parameter_parts(given), costs.cache(given, precision)
    memory = training_memory(given)
    passes = {"forward": costs.forward_parts(given), "decode_step": costs.step_parts(given)}
    stacks = ("decoder",) if given.decoder_only else ("encoder", "decoder")
    return {
        "letters": {stack: given.letters(stack) for stack in stacks},
        "parameters": {
            "total": sum(part.total for part in parts),
            "parts": [
                {"group": part.group, "name": part.name, "formula": part.figure.formula, "matrices": part.figure.value}
                | {"biases": part.biases, "total": part.total}
                for part in parts
            ],
        },
        "multiply_adds": {
            name: {
                "total": sum(part.figure.value for part in found),
                "parts": [
                    {"group": part.group, "name": part.name, "formula": part.figure.formula, "value": part.figure.value}
                    for part in found
                ],
            }
            for name, found in passes.items()
        },
        "multiply_adds_per_target_token": [dataclasses.asdict(row) for row in costs.per_token(given, lengths(given))],
        "cache": {
            "precision": precision,
            "self": dataclasses.asdict(kept.own),
            "cross": None if kept.cross is None else dataclasses.asdict(kept.cross),
            "used_bytes": kept.used_bytes,
            "allocated_bytes": kept.allocated_bytes,
        },
        "training_memory": {
            "total_bytes": sum(part.bytes for part in memory),
            "parts": [dataclasses.asdict(part) for part in memory],
        },
    }


def tables(given: "Sizes", precision: str) -> list[Grid]:
    """All numbers for reading."""
    from seq2seq.inspection import cost as costs
    from seq2seq.inspection.formulas import score_elements
    from seq2seq.inspection.memory import training_memory

    forward, step = costs.forward_parts(given), costs.step_parts(given)
    scores = score_elements(given.letters("decoder"), "T")
    below = (
        f"scores of one layer's decoder self-attention: {scores.formula} = {scores.value:,}; twice the length, four "
        "times as many",
        "training takes about three times as many: the way back has two products for each of these",
    )
    return [
        _parameters(given, costs.parameter_parts(given)),
        _products("multiply-adds of one pass, forward", forward, below),
        _products("multiply-adds of one decode step, T - 1 positions in the cache", step),
        _against_length(costs.per_token(given, lengths(given)), decoder_only=given.decoder_only),
        _cache(costs.cache(given, precision), precision),
        _memory(training_memory(given)),
    ]


def _legend(given: "Sizes") -> list[str]:
    """The letters: those of the decoder, and what is different in the encoder."""
    own = {letter: size for letter, size in given.letters("decoder").items() if size}
    if given.predicted == "T":
        own.pop("U")
    if given.decoder_only:
        own.pop("S", None)
        return legend(own)
    encoder = given.letters("encoder")
    return legend(own | {f"{letter} (encoder)": encoder[letter] for letter in "FNV" if encoder[letter] != own[letter]})


def _parameters(given: "Sizes", parts: list["Part"]) -> Grid:
    total = sum(part.total for part in parts)
    rows = [
        (
            part.name,
            part.figure.formula,
            f"{part.figure.value:,}",
            f"{part.biases:,}" if part.biases else "",
            f"{part.total:,}",
            f"{part.total / total:.1%}",
        )
        for part in parts
    ]
    rows.append(("together", "", "", "", f"{total:,}", ""))
    stack = "decoder" if given.decoder_only else "encoder"
    named = {part.name: part.figure.value for part in parts}
    inner, attention = named[f"{stack} feed-forward"], named[f"{stack} self-attention"]
    share = f"the feed-forward network has {inner / (inner + attention):.1%} of the matrices of a layer"
    layer = share if given.decoder_only else f"{share} of the encoder"
    columns = ("part", "formula", ">matrices", ">biases", ">together", ">share")
    return Grid("parameters", columns, tuple(rows), (layer,))


def _products(title: str, parts: list["Part"], below: tuple[str, ...] = ()) -> Grid:
    total = sum(part.figure.value for part in parts)
    rows = [
        (part.name, part.figure.formula, f"{part.figure.value:,}", f"{part.figure.value / total:.1%}") for part in parts
    ]
    rows.append(("together", "", f"{total:,}", ""))
    return Grid(title, ("part", "formula", ">multiply-adds", ">share"), tuple(rows), below)


def _against_length(found: list["PerToken"], *, decoder_only: bool) -> Grid:
    rows = tuple(
        (
            f"{row.length:,}",
            f"{row.fixed:,}",
            f"{row.attention:,}",
            f"{row.attention / (row.fixed + row.attention):.1%}",
            f"{row.step_fixed:,}",
            f"{row.step_attention:,}",
            f"{row.step_attention / (row.step_fixed + row.step_attention):.1%}",
        )
        for row in found
    )
    columns = (">T" if decoder_only else ">S = T", ">pass", ">+ attention", ">share", ">step", ">+ attention", ">share")
    below = ("attention: scores and context, which grow with the length for each token, so with its square for a text",)
    return Grid("multiply-adds for each target token against length", columns, rows, below)


def _cache(kept: "Cache", precision: str) -> Grid:
    rows = [("self-attention", kept.own.formula, f"{kept.own.value:,}", f"{kept.own.value * kept.bytes_each:,}")]
    if kept.cross is not None:
        cross = kept.cross
        rows.append(("cross-attention", cross.formula, f"{cross.value:,}", f"{cross.value * kept.bytes_each:,}"))
    rows.append(("in use", "", f"{kept.used_bytes // kept.bytes_each:,}", f"{kept.used_bytes:,}"))
    rows.append(("allocated, in blocks of 32 positions", "", f"{kept.allocated:,}", f"{kept.allocated_bytes:,}"))
    below = ("a beam of W has W times as many for self-attention, and shares those of the source",)
    return Grid(f"cache of keys and values, {precision}", ("", "formula", ">numbers", ">bytes"), tuple(rows), below)


def _memory(parts: list["MemoryPart"]) -> Grid:
    total = sum(part.bytes for part in parts)
    rows = [(part.name, part.formula, f"{part.bytes / 1e6:,.1f}") for part in parts]
    rows.append(("together", "", f"{total / 1e6:,.1f}"))
    below = ("an estimate; see --help for what it leaves out and how near it is",)
    return Grid("memory of training, float32", ("", "numbers, 4 bytes each", ">MB"), tuple(rows), below)
