"""`seq2seq inspect shapes`: every operation of a pass with its shape, parameters and multiply-adds."""

import json
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2seq.cli.inspect_model import HELP, VOCAB_HELP, build, check_source, find_model
from seq2seq.cli.inspect_tables import NOTE, Format, Grid, markdown, show

if TYPE_CHECKING:
    from seq2seq.inspection.walk import Operation, Section, Walk

COLUMNS = ("operation", "shape", "actual", ">parameters", ">multiply-adds", NOTE)


class Modes(Enum):
    """Which passes are shown."""

    training = "training"
    prefill = "prefill"
    step = "step"
    all = "all"


TITLES = {
    "training": "training: all target positions at once",
    "prefill": "prefill: what is given is read at once and fills the cache",
    "step": "decode step: one new piece, those before it in the cache",
}


def shapes(
    model: Annotated[str, typer.Argument(metavar="MODEL_OR_CONFIG", help=HELP, show_default=False)],
    batch: Annotated[int, typer.Option(help="Sentences B.", min=1)] = 2,
    src: Annotated[
        int | None,
        typer.Option(
            help="Source pieces S, EOS included; 0 has a decoder-only model read plain text. Default: 5, for a "
            "language model 0.",
            min=0,
            show_default=False,
        ),
    ] = None,
    tgt: Annotated[int, typer.Option(help="Target pieces T, BOS included; in plain text all pieces.", min=1)] = 4,
    mode: Annotated[
        Modes,
        typer.Option(
            help="training: one forward pass. prefill: the source, then T known target pieces at once. step: the last "
            "of the T pieces, the others in the cache."
        ),
    ] = Modes.all,
    vocab_size: Annotated[int | None, typer.Option(help=VOCAB_HELP, min=1, show_default=False)] = None,
    all_layers: Annotated[bool, typer.Option("--all-layers", help="Do not fold layers that are alike.")] = False,
    format_: Annotated[Format, typer.Option("--format", help="What to print on stdout.")] = Format.table,
) -> None:
    """Walk through a model: each operation, its shape in letters and in a real pass, parameters, multiply-adds.

    A pass is run, without padding, and every tensor is looked at; nothing is
    worked out from the options. The letters are those of the package's
    annotations. A tied matrix is counted where it is first used.
    Multiply-adds are those of matrix products. A bundle runs with its
    weights, a configuration with random ones, or on torch's meta device,
    without memory for any, if it has more than 100 million parameters.
    """
    from seq2seq.inspection.shapes import walk
    from seq2seq.inspection.walk import Mode

    subject = find_model(model, vocab_size)
    source = src if src is not None else 0 if subject.reads_text else 5
    check_source(subject, source)
    network = build(subject)
    modes = list(Mode) if mode is Modes.all else [Mode[mode.name]]
    walks = [walk(network, one, batch=batch, source=source, target=tgt) for one in modes]
    if format_ is Format.json:
        passes = [_as_json(one, all_layers=all_layers) for one in walks]
        print(json.dumps({"model": model, "passes": passes}, ensure_ascii=False, indent=2))
        return
    if format_ is Format.markdown:
        print("\n".join([f"# {model}", ""]))
    for one in walks:
        grids = [_grid(section) for section in one.sections(all_layers=all_layers)]
        head = [TITLES[one.mode.name], *legend(one.letters)]
        total = f"in total {one.parameters:,} parameters used, {one.multiply_adds:,} multiply-adds"
        if format_ is Format.markdown:
            print("\n".join([f"## {head[0]}", "", *head[1:], "", *markdown(grids, level=3), total, ""]))
        else:
            _print(f"\n{model}, {head[0]}", bold=True)
            _print(" · ".join(head[1:]))
            show(grids, aligned=True)
            _print(total, bold=True)


def legend(letters: dict[str, int]) -> list[str]:
    """What the letters stand for and how much that is here."""
    from seq2seq.inspection.letters import MEANINGS

    order = list(MEANINGS)
    known = sorted(letters.items(), key=lambda item: (order.index(item[0][0]), item[0]))
    text = {"T": "positions"} if "S" not in letters and "P" not in letters else {}  # no source, no target
    return [f"{letter}={size:,} {(MEANINGS | text)[letter[0]]}" for letter, size in known]


def _print(text: str, *, bold: bool = False) -> None:
    from rich.console import Console

    Console(highlight=False, emoji=False).print(text, markup=False, style="bold" if bold else "")


def _grid(section: "Section") -> Grid:
    """A section's operations, with a heading where a sublayer begins."""
    rows: list[tuple[str, ...]] = []
    part = ""
    for op in section.operations:
        if section.layers and op.part != part:
            part = op.part
            rows.append((part, *[""] * (len(COLUMNS) - 1)))
        rows.append(_row(op))
    return Grid(section.title, COLUMNS, tuple(rows))


def _row(op: "Operation") -> tuple[str, ...]:
    numbers = [f"{number:,}" if number else "" for number in (op.parameters, op.multiply_adds)]
    return ("  " + op.name, f"[{','.join(op.symbols)}]", f"[{','.join(map(str, op.shape))}]", *numbers, op.note)


def _as_json(walk: "Walk", *, all_layers: bool) -> dict[str, Any]:
    return {
        "mode": walk.mode.name,
        "letters": walk.letters,
        "parameters": walk.parameters,
        "multiply_adds": walk.multiply_adds,
        "sections": [
            {
                "title": section.title,
                "stack": section.stack,
                "layers": list(section.layers),
                "operations": [
                    {
                        "part": op.part,
                        "name": op.name,
                        "symbols": list(op.symbols),
                        "shape": list(op.shape),
                        "parameters": op.parameters,
                        "multiply_adds": op.multiply_adds,
                        "note": op.note,
                    }
                    for op in section.operations
                ],
            }
            for section in walk.sections(all_layers=all_layers)
        ],
    }
