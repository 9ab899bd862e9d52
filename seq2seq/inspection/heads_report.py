"""What the numbers of heads say, in words, as tables and as data: heads that do nothing, or one thing only."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from seq2seq.inspection.attention import Kind
from seq2seq.inspection.heads import MEASURES, HeadProfile, HeadReport

DEAD_ENTROPY = 0.95
"""Of the uniform head's: over 20 keys this is the entropy of looking at 17 of them alike."""

MAIN_WEIGHT = 0.5
"""More than half of what a head has to give: it does this one thing, whatever else it does."""

TIMES_UNIFORM = 2.0
"""In short sentences a head that looks everywhere has much of its weight on any one piece, so it takes more than that:
so many times the uniform head's share."""

MAIN_AGREEMENT = 0.6
"""Clearly more than half of the words; of a good model's cross-attention the layers that align have it, others not."""

HEADERS = {
    "entropy": "entropy",
    "first": "first",
    "previous": "previous",
    "same": "same",
    "next": "next",
    "punctuation": "punct.",
    "eos": "EOS",
    "separator": "separator",
    "agreement": "agreement",
}
"""What the columns of measures are called."""

NAMES = {Kind.encoder: "encoder self-attention", Kind.decoder: "decoder self-attention", Kind.cross: "cross-attention"}

_ON = {
    "previous": "the piece before",
    "same": "its own place",
    "next": "the piece after",
    "punctuation": "punctuation",
    "eos": "EOS",
    "separator": "the separator (BOS)",
}


@dataclass(frozen=True)
class Suspect:
    """Something to look at in a head.

    Attributes:
        profile: The head with its numbers.
        what: One word: dead, first, positional, focus or alignment.
        words: What it does, with the number that says so.
    """

    profile: HeadProfile
    what: str
    words: str

    @property
    def sentence(self) -> str:
        """The whole of it."""
        return f"{NAMES[self.profile.kind]}, layer {self.profile.layer}, head {self.profile.head}: {self.words}"


def find_suspects(report: HeadReport) -> list[Suspect]:
    """The heads that stand out, in the order of the profiles; a head may do so in several ways."""
    return [suspect for profile in report.profiles for suspect in _suspect(profile, report.uniform[profile.kind])]


def _suspect(profile: HeadProfile, uniform: dict[str, float | None]) -> Iterator[Suspect]:
    found = profile.measures
    entropy = found["entropy"]
    if entropy is not None and entropy >= DEAD_ENTROPY:
        yield Suspect(
            profile,
            "dead",
            f"spreads evenly over all keys (entropy {entropy:.2f} of the uniform head's), so it carries nothing; a "
            "candidate for pruning, with the BLEU before and after",
        )
    if _stands_out(found["first"], uniform["first"], MAIN_WEIGHT):
        piece = "first piece" if profile.kind is not Kind.decoder else "first piece, where its text begins,"
        yield Suspect(
            profile,
            "first",
            f"looks at the {piece} whatever the query ({_beside(found['first'], uniform['first'])}); over-fitted to a "
            "surface pattern, or resting there when it has nothing to find",
        )
    for name in ("previous", "same", "next"):
        if _stands_out(found[name], uniform[name], MAIN_WEIGHT):
            numbers = _beside(found[name], uniform[name])
            yield Suspect(profile, "positional", f"positional: looks at {_ON[name]} ({numbers})")
    for name in ("punctuation", "eos", "separator"):
        if _stands_out(found[name], uniform[name], MAIN_WEIGHT):
            numbers = _beside(found[name], uniform[name])
            yield Suspect(profile, "focus", f"focus column: a bright stripe on {_ON[name]} ({numbers})")
    if _stands_out(found["agreement"], uniform["agreement"], MAIN_AGREEMENT):
        yield Suspect(
            profile,
            "alignment",
            f"alignment: for {_percent(found['agreement'])} of the words that are predicted it looks most at the word "
            f"of the source that the mean of all heads looks at most (a uniform head: "
            f"{_percent(uniform['agreement'])})",
        )


def _stands_out(found: float | None, uniform: float | None, threshold: float) -> bool:
    return found is not None and uniform is not None and found >= max(threshold, TIMES_UNIFORM * uniform)


def _beside(found: float | None, uniform: float | None) -> str:
    return f"{found:.2f} of its weight, a uniform head {uniform:.2f}"


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.0f} %"


@dataclass(frozen=True)
class Table:
    """Headers and rows of text, for whoever draws tables."""

    headers: list[str]
    rows: list[list[str]]


def as_table(report: HeadReport, suspects: Sequence[Suspect]) -> Table:
    """One row for each head, and before those of a kind the uniform head's; measures that nobody has are left out."""
    used = [name for name in MEASURES if any(profile.measures[name] is not None for profile in report.profiles)]
    whats: dict[int, list[str]] = {}
    for suspect in suspects:
        whats.setdefault(id(suspect.profile), []).append(suspect.what)
    rows: list[list[str]] = []
    kind = None
    for profile in report.profiles:
        if profile.kind is not kind:
            kind = profile.kind
            rows.append([kind.name, "", "uniform", *_figures(report.uniform[kind], used), ""])
        own = ", ".join(dict.fromkeys(whats.get(id(profile), [])))
        figures = _figures(profile.measures, used)
        rows.append([profile.kind.name, str(profile.layer), str(profile.head), *figures, own])
    return Table(["attention", "layer", "head", *(HEADERS[name] for name in used), "remarks"], rows)


def _figures(measures: dict[str, float | None], names: Sequence[str]) -> list[str]:
    return ["-" if (value := measures[name]) is None else f"{value:.3f}" for name in names]


def as_markdown(report: HeadReport, suspects: Sequence[Suspect]) -> str:
    """The table and the sentences as Markdown."""
    table = as_table(report, suspects)
    lines = [f"Means over {counted(report)}.", "", _row(table.headers), _row(["---"] * len(table.headers))]
    lines += [_row(row) for row in table.rows]
    lines += ["", *(f"- {sentence}" for sentence in sentences(suspects))]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def sentences(suspects: Sequence[Suspect]) -> list[str]:
    """The suspects in words; one sentence too where there are none."""
    return [suspect.sentence for suspect in suspects] or ["No head stands out."]


def counted(report: HeadReport) -> str:
    """What the means are over."""
    queries = ", ".join(f"{count} queries of {NAMES[kind]}" for kind, count in report.num_queries.items())
    return f"{report.num_sentences} sentences: {queries}"


def as_data(report: HeadReport, suspects: Sequence[Suspect]) -> dict[str, Any]:
    """All of it as plain builtins that JSON can hold."""
    return {
        "sentences": report.num_sentences,
        "queries": {kind.name: count for kind, count in report.num_queries.items()},
        "uniform": {kind.name: measures for kind, measures in report.uniform.items()},
        "heads": [
            {"kind": profile.kind.name, "layer": profile.layer, "head": profile.head, **profile.measures}
            for profile in report.profiles
        ],
        "suspects": [
            {
                "kind": suspect.profile.kind.name,
                "layer": suspect.profile.layer,
                "head": suspect.profile.head,
                "what": suspect.what,
                "sentence": suspect.sentence,
            }
            for suspect in suspects
        ],
        "thresholds": {
            "dead_entropy": DEAD_ENTROPY,
            "main_weight": MAIN_WEIGHT,
            "times_uniform": TIMES_UNIFORM,
            "main_agreement": MAIN_AGREEMENT,
        },
    }
