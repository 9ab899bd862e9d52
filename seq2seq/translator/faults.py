"""Translations that look wrong by themselves: empty ones, loops, copies of the source, odd lengths, unknown pieces."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from seq2seq.text.lines import is_blank
from seq2seq.translator.results import Translation

LOOP_PIECES, LOOP_TIMES = 6, 3
"""A loop is at least so many pieces at the end that are the same ones over and over, at least so many times."""

COPIED, NOT_COPIED, COPY_WORDS = 0.8, 0.5, 5
"""A copy has at least this share of its words from the source, where the reference has at most that; in translations of
at least so many words. Shorter ones are copies if they are the source."""

SHORT, LONG, ODD_PIECES = 0.5, 2.0, 5
"""A translation is too short or too long beside the reference with less or more than this share of its pieces, and at
least so many fewer or more."""


class Fault(Enum):
    """What looks wrong."""

    empty = "nothing, where the reference is not empty"
    loop = "the same pieces over and over at the end"
    copy = "all or most words copied from the source"
    too_short = "less than half as long as the reference"
    too_long = "more than twice as long as the reference"
    hit_limit = "ended by the limit of length"
    unknown_output = "unknown piece in the translation"
    unknown_source = "unknown piece in the source"


@dataclass(frozen=True)
class Sentence:
    """A translation beside its reference."""

    answer: Translation
    reference: str
    reference_ids: Sequence[int]
    """Pieces, without EOS."""
    eos: int
    unknown: tuple[int, int]
    """Ids of the unknown piece of source and target."""

    @property
    def ids(self) -> list[int]:
        """Pieces of the translation, without EOS."""
        return [id_ for id_ in self.answer.ids if id_ != self.eos]


def find_faults(sentences: Sequence[Sentence]) -> dict[Fault, list[int]]:
    """For each fault the places of the sentences that have it."""
    return {
        fault: [place for place, sentence in enumerate(sentences) if has(sentence)] for fault, has in _TESTS.items()
    }


def loop_at_end(ids: Sequence[int]) -> int | None:
    """Pieces of what is repeated at the end, the shortest such unit; None if nothing is."""
    for unit in range(1, len(ids) // LOOP_TIMES + 1):
        times = max(LOOP_TIMES, -(-LOOP_PIECES // unit))
        if unit * times <= len(ids) and all(
            ids[-place] == ids[-place - unit] for place in range(1, unit * times - unit + 1)
        ):
            return unit
    return None


def share_copied(text: str, source: str) -> float:
    """Share of the words of a text that come from another, each as often as there; upper case does not matter."""
    words, own = text.casefold().split(), Counter(source.casefold().split())
    return (Counter(words) & own).total() / len(words) if words else 0.0


def _is_empty(one: Sentence) -> bool:
    return is_blank(one.answer.text) and not is_blank(one.reference) and bool(one.answer.source_ids)


def _loops(one: Sentence) -> bool:
    return loop_at_end(one.ids) is not None and loop_at_end(one.reference_ids) is None


def _is_copy(one: Sentence) -> bool:
    text, source, reference = one.answer.text, one.answer.source, one.reference
    if is_blank(text) or text.casefold().split() == reference.casefold().split():
        return False
    if text.casefold().split() == source.casefold().split():
        return True
    many = len(text.split()) >= COPY_WORDS
    return many and share_copied(text, source) >= COPIED and share_copied(reference, source) <= NOT_COPIED


def _is_short(one: Sentence) -> bool:
    num, expected = len(one.ids), len(one.reference_ids)
    return 0 < num < SHORT * expected and expected - num >= ODD_PIECES


def _is_long(one: Sentence) -> bool:
    num, expected = len(one.ids), len(one.reference_ids)
    return num > LONG * expected and num - expected >= ODD_PIECES


def _has_unknown_source(one: Sentence) -> bool:
    return any(one.unknown[0] in part for part in one.answer.source_ids)


_TESTS: dict[Fault, Callable[[Sentence], bool]] = {
    Fault.empty: _is_empty,
    Fault.loop: _loops,
    Fault.copy: _is_copy,
    Fault.too_short: _is_short,
    Fault.too_long: _is_long,
    Fault.hit_limit: lambda one: one.answer.hit_limit,
    Fault.unknown_output: lambda one: one.unknown[1] in one.ids,
    Fault.unknown_source: _has_unknown_source,
}
