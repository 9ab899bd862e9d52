"""What is in two files of parallel text, and what in them looks wrong."""

import math
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seq2seq.corpus.parallel import pair_up, read_sides
from seq2seq.text.lines import find_file, is_blank
from seq2seq.text.tokenizer import Tokenizer

NUM_LONGEST = 5
"""How many of the longest lines are reported for each side."""
MAX_RATIO = 3.0
"""A pair is an outlier when its ratio of lengths is this many times larger or smaller than usual, ..."""
MIN_RATIO_CHARACTERS = 20
"""... and its longer side has at least this many characters: short lines vary without being wrong."""
# UTF-8 read as Windows-1252 or Latin-1 and written as UTF-8 again: Ã¤ for ä, â€œ for a quotation mark.
_DOUBLE_ENCODED = re.compile("[\u00c2\u00c3][\u0080-\u00bf]|\u00e2\u20ac")


@dataclass(frozen=True)
class LongLine:
    """One of the longest lines."""

    line: int
    """Number in the file, from 1."""
    characters: int
    """Its length."""
    pieces: int | None
    """Its length in pieces of the tokenizer, EOS not counted; None without one."""


@dataclass(frozen=True)
class Oddity:
    """Something that is seldom meant."""

    what: str
    """In words."""
    count: int
    """Occurrences in the file."""
    first_line: int
    """Where the first one is."""


@dataclass(frozen=True)
class PieceUse:
    """How a tokenizer copes with one side."""

    pieces: int
    """All pieces, EOS not counted."""
    unknown: int
    """Unknown pieces among them."""
    byte_pieces: int
    """Byte pieces among them: parts of characters that have no piece of their own."""
    lines_affected: int
    """Lines with an unknown or byte piece."""

    @property
    def unknown_rate(self) -> float:
        """Share of the pieces that are unknown."""
        return self.unknown / self.pieces if self.pieces else 0.0

    @property
    def byte_rate(self) -> float:
        """Share of the pieces that are bytes."""
        return self.byte_pieces / self.pieces if self.pieces else 0.0


@dataclass(frozen=True)
class SideReport:
    """Findings on one file."""

    path: str
    lines: int
    words: int
    """Stretches of text between white space."""
    characters: int
    blank: int
    """Lines with nothing to see."""
    duplicates: int
    """Lines that repeat an earlier one, blank ones not counted."""
    longest: list[LongLine]
    """The longest lines in characters, or in pieces if there is a tokenizer."""
    oddities: list[Oddity]
    piece_use: PieceUse | None


@dataclass(frozen=True)
class Overlap:
    """What two corpora share: text that a model has seen in training says little in a test."""

    source_path: str
    target_path: str
    pairs: int
    """Pairs of the other corpus."""
    shared_sources: int
    """Source lines of the other corpus that stand in this one too."""
    shared_targets: int
    """The same of target lines."""
    shared_pairs: list[int]
    """Line numbers, in the other corpus, of pairs that stand in this one too."""


@dataclass(frozen=True)
class CorpusReport:
    """Findings on a pair of files; line numbers count from 1."""

    source: SideReport
    target: SideReport
    pairs: int
    """Pairs with text on both sides."""
    one_sided: list[int]
    """Lines that are blank on one side; training leaves them out."""
    both_blank: list[int]
    duplicate_pairs: int
    """Pairs that repeat an earlier one."""
    equal_sides: list[int]
    """Lines whose two sides are the same text."""
    usual_ratio: float
    """Median of target characters over source characters."""
    ratio_outliers: list[int]
    """Lines whose ratio is far from the usual one, the farthest first."""
    overlap: Overlap | None


def check_parallel(
    source_path: str | Path,
    target_path: str | Path,
    *,
    source_tokenizer: Tokenizer | None = None,
    target_tokenizer: Tokenizer | None = None,
    against: tuple[str | Path, str | Path] | None = None,
) -> CorpusReport:
    """Findings on the parallel text in two files.

    Args:
        source_path: Source text.
        target_path: Its translation, line by line.
        source_tokenizer: Counts pieces, unknown and byte pieces of the source.
        target_tokenizer: The same for the target.
        against: Another pair of files (validation, test) to look for in this one.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is not UTF-8, or two files that should be parallel differ in their number of lines.
    """
    source, target = read_sides(source_path, target_path)
    text = pair_up(source, target)
    pairs = list(zip(text.source, text.target, strict=True))
    ratio, outliers = _ratio_outliers(pairs, text.line_numbers)
    return CorpusReport(
        source=_check_side(source_path, source, source_tokenizer),
        target=_check_side(target_path, target, target_tokenizer),
        pairs=len(pairs),
        one_sided=text.one_sided,
        both_blank=text.both_empty,
        duplicate_pairs=len(pairs) - len(set(pairs)),
        equal_sides=[n for n, (left, right) in zip(text.line_numbers, pairs, strict=True) if left == right],
        usual_ratio=ratio,
        ratio_outliers=outliers,
        overlap=None if against is None else _overlap(pairs, *against),
    )


def _check_side(path: str | Path, lines: list[str], tokenizer: Tokenizer | None) -> SideReport:
    visible = [line for line in lines if not is_blank(line)]
    encoded = None if tokenizer is None else tokenizer.encode_batch(lines)
    sizes = [len(ids) for ids in encoded] if encoded is not None else [len(line) for line in lines]
    longest = sorted(range(len(lines)), key=sizes.__getitem__, reverse=True)[:NUM_LONGEST]
    return SideReport(
        path=str(find_file(path)),
        lines=len(lines),
        words=sum(len(line.split()) for line in visible),
        characters=sum(map(len, lines)),
        blank=len(lines) - len(visible),
        duplicates=len(visible) - len(set(visible)),
        longest=[LongLine(i + 1, len(lines[i]), None if encoded is None else len(encoded[i])) for i in longest],
        oddities=_oddities(lines),
        piece_use=None if tokenizer is None or encoded is None else _piece_use(encoded, tokenizer),
    )


def _oddities(lines: list[str]) -> list[Oddity]:
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line)
    kinds: dict[str, set[str]] = {}
    for character in counts:
        kind = _odd_kind(character)
        if kind is not None:
            kinds.setdefault(kind, set()).add(character)
    found = [
        Oddity(
            what=kind,
            count=sum(counts[character] for character in characters),
            first_line=next(n for n, line in enumerate(lines, start=1) if not characters.isdisjoint(line)),
        )
        for kind, characters in kinds.items()
    ]
    doubled = [n for n, line in enumerate(lines, start=1) if _DOUBLE_ENCODED.search(line)]
    if doubled:
        found.append(Oddity("lines that look encoded in UTF-8 twice", len(doubled), doubled[0]))
    return sorted(found, key=lambda oddity: oddity.first_line)


def _odd_kind(character: str) -> str | None:
    """What is odd about a character, in the plural; None for one that text usually has."""
    named = {
        "\t": "tabs",
        "\r": "carriage returns inside a line",
        "\x85": "line separators (U+0085, U+2028, U+2029)",
        "\u2028": "line separators (U+0085, U+2028, U+2029)",
        "\u2029": "line separators (U+0085, U+2028, U+2029)",
        "\xa0": "no-break spaces (U+00A0)",
        "\ufffd": "replacement characters (U+FFFD), left by a failed conversion",
    }
    if character in named:
        return named[character]
    return {
        "Cc": "control characters",
        "Cf": "invisible format characters (zero-width, direction marks, soft hyphens)",
        "Co": "private-use characters",
        "Cn": "unassigned characters",
    }.get(unicodedata.category(character))


def _piece_use(encoded: Sequence[Sequence[int]], tokenizer: Tokenizer) -> PieceUse:
    byte_ids = tokenizer.byte_ids
    unknown = [sum(id_ == tokenizer.special.unk for id_ in ids) for ids in encoded]
    spelled = [sum(id_ in byte_ids for id_ in ids) for ids in encoded]
    return PieceUse(
        pieces=sum(map(len, encoded)),
        unknown=sum(unknown),
        byte_pieces=sum(spelled),
        lines_affected=sum(bool(a or b) for a, b in zip(unknown, spelled, strict=True)),
    )


def _ratio_outliers(pairs: list[tuple[str, str]], numbers: list[int]) -> tuple[float, list[int]]:
    """The usual ratio of target to source characters, and the lines far from it, the farthest first."""
    if not pairs:
        return 1.0, []
    logs = [math.log(len(right) / len(left)) for left, right in pairs]
    usual = statistics.median(logs)
    far = [
        (abs(value - usual), number)
        for value, number, pair in zip(logs, numbers, pairs, strict=True)
        if abs(value - usual) > math.log(MAX_RATIO) and max(map(len, pair)) >= MIN_RATIO_CHARACTERS
    ]
    return math.exp(usual), [number for _, number in sorted(far, key=lambda entry: (-entry[0], entry[1]))]


def _overlap(pairs: list[tuple[str, str]], source_path: str | Path, target_path: str | Path) -> Overlap:
    other = pair_up(*read_sides(source_path, target_path))
    sources, targets, both = {left for left, _ in pairs}, {right for _, right in pairs}, set(pairs)
    others = zip(other.line_numbers, other.source, other.target, strict=True)
    return Overlap(
        source_path=str(find_file(source_path)),
        target_path=str(find_file(target_path)),
        pairs=len(other),
        shared_sources=sum(line in sources for line in other.source),
        shared_targets=sum(line in targets for line in other.target),
        shared_pairs=[number for number, left, right in others if (left, right) in both],
    )
