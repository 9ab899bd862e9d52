"""The options of searching and of the machine, declared once for every command that has them.

None means that the option was not given: the bundle's own value, from `DecodeConfig`, holds.
"""

from typing import Annotated

import typer

from seq2seq.config import LongLines, PenaltyForm

SEARCH = "Search (what is not given is as the model's bundle says)"
MACHINE = "Machine"

BeamSize = Annotated[
    int | None, typer.Option("--beam-size", "--beam", help="Hypotheses kept; 1 is greedy.", rich_help_panel=SEARCH)
]
Penalty = Annotated[PenaltyForm | None, typer.Option(help="Divisor for length.", rich_help_panel=SEARCH)]
LengthExponent = Annotated[
    float | None, typer.Option(help="Its exponent: larger favours longer translations.", rich_help_panel=SEARCH)
]
MinLength = Annotated[int | None, typer.Option(help="Fewest pieces, the end included.", rich_help_panel=SEARCH)]
MaxLength = Annotated[int | None, typer.Option(help="Most pieces, the end included.", rich_help_panel=SEARCH)]
MinLengthFactor = Annotated[float | None, typer.Option(help="At least factor * source length.", rich_help_panel=SEARCH)]
MaxLengthFactor = Annotated[
    float | None, typer.Option(help="At most factor * source length + offset.", rich_help_panel=SEARCH)
]
MaxLengthOffset = Annotated[int | None, typer.Option(help="The offset, in pieces.", rich_help_panel=SEARCH)]
MaxSourceLength = Annotated[
    int | None, typer.Option(help="Longer lines (in pieces) are treated as --long says.", rich_help_panel=SEARCH)
]
Long = Annotated[
    LongLines | None,
    typer.Option(
        "--long",
        help="error: stop there. truncate: drop the pieces beyond the limit. split: translate sentence by sentence "
        "and join. Each such line is named on standard error.",
        rich_help_panel=SEARCH,
    ),
]
BatchTokens = Annotated[
    int | None, typer.Option(help="Source pieces given to the model at once.", rich_help_panel=MACHINE)
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.", rich_help_panel=MACHINE)]
Threads = Annotated[int | None, typer.Option(help="CPU threads.", rich_help_panel=MACHINE)]
