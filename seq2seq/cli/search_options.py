"""The options of searching and of the machine, declared once for every command that has them.

None means that the option was not given: the bundle's own value, from `DecodeConfig`, holds.
"""

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import typer

from seq2seq.config import DecodeConfig, LongLines, PenaltyForm, Utility
from seq2seq.text.lines import is_blank, read_lines

SEARCH = "Search (what is not given is as the model's bundle says)"
PIECES = "What translations are made of"
DRAWING = "Drawing translations instead of searching"
CHOICE = "Choosing among translations"
ALIGNMENT = "Alignment"
MACHINE = "Machine"

BeamSize = Annotated[
    int | None, typer.Option("--beam-size", "--beam", help="Hypotheses kept; 1 is greedy.", rich_help_panel=SEARCH)
]
Penalty = Annotated[PenaltyForm | None, typer.Option(help="Divisor for length.", rich_help_panel=SEARCH)]
LengthExponent = Annotated[
    float | None, typer.Option(help="Its exponent: larger favours longer translations.", rich_help_panel=SEARCH)
]
Patience = Annotated[
    float | None,
    typer.Option(
        help="A sentence is done when patience * beam hypotheses have ended. Without it, when none can become better.",
        rich_help_panel=SEARCH,
    ),
]
Coverage = Annotated[
    float | None,
    typer.Option(
        help="Favours translations that attend to all of the source; 0.2 is usual, with the penalty gnmt.",
        rich_help_panel=SEARCH,
    ),
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
NoRepeat = Annotated[
    int | None, typer.Option(help="No sequence of so many pieces comes twice; 3 is usual.", rich_help_panel=PIECES)
]
Repetition = Annotated[
    float | None,
    typer.Option(help="Above 1: pieces that have come already are less probable.", rich_help_panel=PIECES),
]
Forbid = Annotated[
    list[str] | None,
    typer.Option(
        "--forbid",
        metavar="WORD",
        help="A word or phrase that no translation contains; several times for several.",
        rich_help_panel=PIECES,
    ),
]
ForbidFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="The same from a file, one a line.", rich_help_panel=PIECES)
]
UnknownPenalty = Annotated[
    float | None, typer.Option(help="Nats that the unknown piece costs more.", rich_help_panel=PIECES)
]
ForbidUnknown = Annotated[
    bool | None,
    typer.Option("--forbid-unknown/--allow-unknown", help="Never produce the unknown piece.", rich_help_panel=PIECES),
]
ReplaceUnknown = Annotated[
    bool | None,
    typer.Option(
        "--replace-unknown/--keep-unknown",
        help="Write the source word that an unknown piece is aligned to in its place.",
        rich_help_panel=PIECES,
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        help="Above 0 translations are drawn, --n-best of them; 1 by the model's probabilities.",
        rich_help_panel=DRAWING,
    ),
]
TopK = Annotated[int | None, typer.Option(help="Draw from the k most probable pieces.", rich_help_panel=DRAWING)]
TopP = Annotated[
    float | None,
    typer.Option(help="Draw from the most probable pieces with this sum of probabilities.", rich_help_panel=DRAWING),
]
MinP = Annotated[
    float | None,
    typer.Option(help="Draw from pieces at least so probable beside the best one.", rich_help_panel=DRAWING),
]
Seed = Annotated[int | None, typer.Option(help="Other draws for another number.", rich_help_panel=DRAWING)]
Mbr = Annotated[
    Utility | None,
    typer.Option(
        help="Minimum Bayes risk: take the translation that is most like all that were found or drawn.",
        rich_help_panel=CHOICE,
    ),
]
NumCandidates = Annotated[
    int | None, typer.Option(help="How many those are. Default: the beam, or --n-best.", rich_help_panel=CHOICE)
]
AlignmentLayer = Annotated[
    int | None,
    typer.Option(
        help="Decoder layer whose attention aligns, from 1. Default: the last but one.", rich_help_panel=ALIGNMENT
    ),
]
AlignmentHead = Annotated[
    int | None, typer.Option(help="Head of it, from 1. Default: the mean of all.", rich_help_panel=ALIGNMENT)
]
UseShortlist = Annotated[
    bool | None,
    typer.Option(
        "--shortlist/--full-vocabulary",
        help="Choose pieces from the bundle's shortlist (`seq2seq data shortlist`) alone, which is faster.",
        rich_help_panel=MACHINE,
    ),
]
BatchTokens = Annotated[
    int | None, typer.Option(help="Source pieces given to the model at once.", rich_help_panel=MACHINE)
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.", rich_help_panel=MACHINE)]
Threads = Annotated[int | None, typer.Option(help="CPU threads.", rich_help_panel=MACHINE)]


@dataclass(frozen=True)
class SearchOptions:
    """How a model translates: fields of `DecodeConfig`, as typed, and None where nothing was."""

    beam_size: BeamSize = None
    penalty_form: Penalty = None
    length_penalty: LengthExponent = None
    patience: Patience = None
    coverage_penalty: Coverage = None
    min_length: MinLength = None
    max_length: MaxLength = None
    min_length_factor: MinLengthFactor = None
    max_length_factor: MaxLengthFactor = None
    max_length_offset: MaxLengthOffset = None
    max_source_length: MaxSourceLength = None
    long_lines: Long = None
    no_repeat_ngram: NoRepeat = None
    repetition_penalty: Repetition = None
    forbidden: Forbid = None
    forbid_file: ForbidFile = None
    unknown_penalty: UnknownPenalty = None
    forbid_unknown: ForbidUnknown = None
    replace_unknown: ReplaceUnknown = None
    temperature: Temperature = None
    top_k: TopK = None
    top_p: TopP = None
    min_p: MinP = None
    seed: Seed = None
    mbr: Mbr = None
    num_candidates: NumCandidates = None
    alignment_layer: AlignmentLayer = None
    alignment_head: AlignmentHead = None
    shortlist: UseShortlist = None
    batch_tokens: BatchTokens = None

    def given(self) -> dict[str, Any]:
        """The options that were typed, the file of forbidden words read.

        Raises:
            ValueError: if that file has no words.
            FileNotFoundError: if there is no such file.
        """
        typed = {field.name: getattr(self, field.name) for field in fields(self)}
        chosen = {name: value for name, value in typed.items() if value is not None and name != "forbid_file"}
        if self.forbid_file is not None:
            words = [line for line in read_lines(self.forbid_file) if not is_blank(line)]
            if not words:
                raise ValueError(f"{self.forbid_file} has no word in it; expected words to forbid, one a line")
            chosen["forbidden"] = [*(self.forbidden or []), *words]
        return chosen


_IDLE_WITHOUT_DRAWING = {"top_k": None, "top_p": 1.0, "min_p": 0.0}
_IDLE_WITHOUT_BEAM = {"patience": None, "coverage_penalty": 0.0}


def chosen(decode: DecodeConfig, given: dict[str, Any]) -> DecodeConfig:
    """The bundle's options, those that were given in their place.

    What the bundle alone says is given up where it has no use beside what was given: a beam where translations are
    drawn, patience where there is no beam.

    Raises:
        ValueError: if the options do not fit together.
    """
    changes = dict(given)
    if changes.get("temperature", 0) > 0:
        changes.setdefault("beam_size", 1)
    if changes.get("temperature", decode.temperature) == 0:
        changes = _IDLE_WITHOUT_DRAWING | changes
    if changes.get("beam_size", decode.beam_size) == 1:
        changes = _IDLE_WITHOUT_BEAM | changes
    return replace(decode, **changes)
