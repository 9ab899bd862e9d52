"""What `seq2seq diagnose` has found, as text for people and as JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seq2seq.config import DecodeConfig, PenaltyForm, to_dict

if TYPE_CHECKING:
    from seq2seq.evaluation import MetricScore
    from seq2seq.translator.diagnosis import SearchErrors
    from seq2seq.translator.faults import Fault

SHOWN = 100
"""Characters of a text that are printed."""


@dataclass(frozen=True)
class Line:
    """A line that was looked at."""

    number: int
    """In the file, counted from 1."""
    source: str
    reference: str


@dataclass(frozen=True)
class Swept:
    """What one beam size and length penalty give."""

    beam_size: int
    length_penalty: float
    bleu: "MetricScore"
    num_searched: int
    """Lines; the others were told from a search under another penalty."""
    num_empty: int

    @property
    def length_ratio(self) -> float:
        """Tokens of the translations over those of the references."""
        assert self.bleu.bleu is not None
        return self.bleu.bleu.length_ratio


@dataclass(frozen=True)
class Diagnosis:
    """Everything that was measured."""

    model: str
    decode: DecodeConfig
    """The options in use."""
    lines: Sequence[Line]
    texts: Sequence[str]
    """Their translations under these options."""
    bleu: "MetricScore"
    errors: "dict[str, SearchErrors]"
    """By what is compared with the search, greedy or reference; empty where scores cannot be compared."""
    faults: "dict[Fault, list[int]]"
    """Places of the lines that have each."""
    sweep: Sequence[Swept]

    @property
    def penalty_form(self) -> str:
        """The form of the length penalty in the sweep."""
        form = self.decode.penalty_form
        return PenaltyForm.gnmt.name if form is PenaltyForm.none else form.name


def as_text(found: Diagnosis, examples: int) -> str:
    """The diagnosis in sections: BLEU, search errors, faults, sweep, advice."""
    from seq2seq.cli.diagnose_advice import advice

    parts = [_head(found), _search_errors(found, examples), _faults(found, examples), _sweep(found)]
    parts.append(["Advice", *(f"  - {sentence}" for sentence in advice(found))])
    return "\n\n".join("\n".join(part) for part in parts)


def _head(found: Diagnosis) -> list[str]:
    decode = found.decode
    return [
        f"{len(found.lines)} lines, beam {decode.beam_size}, length penalty {decode.penalty_form.name} "
        f"{decode.length_penalty:g}",
        found.bleu.line(2),
    ]


def _search_errors(found: Diagnosis, examples: int) -> list[str]:
    if not found.errors:
        return ["Search errors: not looked for, since options change the scores or forbid translations"]
    rows = ["Search errors (the model gives another translation a higher score than the one found)"]
    names = {"greedy": "the greedy translation", "reference": "the reference"}
    for kind, errors in found.errors.items():
        rows.append(f"  {names[kind]} scores higher in {_share(len(errors.rivals), errors.num_compared)}")
        for rival in errors.rivals[:examples]:
            rows.append(f"    line {found.lines[rival.place].number}")
            rows.append(f"      found  {rival.found_score:.4f}  {_cut(found.texts[rival.place])}")
            rows.append(f"      {kind[:6]:<6} {rival.score:.4f}  {_cut(rival.text)}")
    return rows


def _faults(found: Diagnosis, examples: int) -> list[str]:
    rows = ["Translations that look wrong"]
    for fault, places in found.faults.items():
        rows.append(f"  {fault.value}: {_share(len(places), len(found.lines))}")
        for place in places[:examples]:
            rows.append(f"    line {found.lines[place].number}: {_cut(found.texts[place]) or '(empty)'}")
    return rows


def _sweep(found: Diagnosis) -> list[str]:
    """A table, penalties down and beam sizes across, each with BLEU and the length ratio."""
    sizes = sorted({one.beam_size for one in found.sweep})
    exponents = sorted({one.length_penalty for one in found.sweep})
    cells = {(one.beam_size, one.length_penalty): one for one in found.sweep}
    rows = [f"BLEU and length ratio by beam size and length penalty ({found.penalty_form})"]
    rows.append("  penalty " + "".join(f"{'beam ' + str(size):>16}" for size in sizes))
    for exponent in exponents:
        row = [cells[size, exponent] for size in sizes]
        rows.append(f"  {exponent:<8g}" + "".join(f"{one.bleu.score:>9.2f} {one.length_ratio:.3f} " for one in row))
    searched = sum(one.num_searched for one in found.sweep)
    total = len(found.lines) * len(found.sweep)
    rows.append(
        f"  {searched} of {total} translations were searched for; {total - searched} are certain from the search under "
        "another penalty"
    )
    return rows


def _share(count: int, total: int) -> str:
    percent = f" ({100 * count / total:.1f} %)" if total else ""
    return f"{count} of {total} lines{percent}"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def as_json(found: Diagnosis, examples: int) -> str:
    """The same as one JSON object, with the numbers of all lines concerned and the texts of some."""
    from seq2seq.cli.diagnose_advice import advice

    return json.dumps(
        {
            "model": found.model,
            "lines": len(found.lines),
            "decode": to_dict(found.decode),
            "bleu": found.bleu.as_dict(),
            "search_errors": {kind: _errors_data(found, errors, examples) for kind, errors in found.errors.items()},
            "faults": {
                fault.name: dict(_fault_data(found, places, examples)) for fault, places in found.faults.items()
            },
            "sweep": [_swept_data(one) for one in found.sweep],
            "penalty_form": found.penalty_form,
            "advice": advice(found),
        },
        ensure_ascii=False,
    )


def _errors_data(found: Diagnosis, errors: "SearchErrors", examples: int) -> dict[str, Any]:
    return {
        "compared": errors.num_compared,
        "count": len(errors.rivals),
        "lines": [found.lines[rival.place].number for rival in errors.rivals],
        "examples": [
            {
                "line": found.lines[rival.place].number,
                "source": found.lines[rival.place].source,
                "found": found.texts[rival.place],
                "found_score": rival.found_score,
                "rival": rival.text,
                "rival_score": rival.score,
            }
            for rival in errors.rivals[:examples]
        ],
    }


def _fault_data(found: Diagnosis, places: Sequence[int], examples: int) -> Iterator[tuple[str, Any]]:
    yield "count", len(places)
    yield "lines", [found.lines[place].number for place in places]
    yield (
        "examples",
        [
            {
                "line": found.lines[place].number,
                "source": found.lines[place].source,
                "reference": found.lines[place].reference,
                "found": found.texts[place],
            }
            for place in places[:examples]
        ],
    )


def _swept_data(one: Swept) -> dict[str, Any]:
    assert one.bleu.bleu is not None
    return {
        "beam_size": one.beam_size,
        "length_penalty": one.length_penalty,
        "bleu": one.bleu.score,
        "length_ratio": one.length_ratio,
        "brevity_penalty": one.bleu.bleu.brevity_penalty,
        "empty": one.num_empty,
        "searched": one.num_searched,
    }
