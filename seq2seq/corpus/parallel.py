"""Parallel text: two files of which line n of one translates line n of the other."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seq2seq.corpus.alignment import first_shifted_line
from seq2seq.text.lines import count_lines, find_file, is_blank, read_lines

_LISTED = 10
"""How many line numbers a message lists."""


@dataclass(frozen=True)
class ParallelText:
    """Pairs of segments, both sides with text, and what was left out."""

    source: list[str]
    """Source segments."""
    target: list[str]
    """Their translations."""
    line_numbers: list[int]
    """Where each pair stands in the files, counted from 1."""
    num_lines: int
    """Lines of each file."""
    one_sided: list[int]
    """Line numbers of pairs left out because one side is blank."""
    both_empty: list[int]
    """Line numbers of pairs left out because both sides are blank."""

    def __len__(self) -> int:
        return len(self.source)

    def notice(self) -> str | None:
        """One sentence on the pairs left out for a blank side, with line numbers; None if there are none."""
        if not self.one_sided:
            return None
        pairs = "pair is" if len(self.one_sided) == 1 else "pairs are"
        return (
            f"{len(self.one_sided):,} of {self.num_lines:,} {pairs} blank on one side and left out: "
            f"{listed_lines(self.one_sided)}"
        )


def read_parallel(source_path: str | Path, target_path: str | Path) -> ParallelText:
    """The pairs of two files; pairs with a blank side are left out and listed.

    Args:
        source_path: Source text, one segment a line, plain or ``.gz``.
        target_path: Its translation, line by line.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is not UTF-8, the numbers of lines differ (the message says where the files look shifted),
            or no pair has text on both sides.
    """
    source, target = read_sides(source_path, target_path)
    text = pair_up(source, target)
    if not text.source:
        raise ValueError(
            f"{source_path} and {target_path} have no pair with text on both sides ({text.num_lines} lines, "
            f"{len(text.one_sided)} blank on one side, {len(text.both_empty)} on both); expected parallel text"
        )
    return text


def read_sides(source_path: str | Path, target_path: str | Path) -> tuple[list[str], list[str]]:
    """All lines of two files, blank ones too, as many of one as of the other.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is not UTF-8, or the numbers of lines differ; says where the files look shifted.
    """
    source, target = read_lines(source_path), read_lines(target_path)
    if len(source) != len(target):
        raise ValueError(_unequal(source_path, source, target_path, target))
    return source, target


def pair_up(source: Sequence[str], target: Sequence[str]) -> ParallelText:
    """Pairs of two equally long lists of lines, those with a blank side left out and listed."""
    assert len(source) == len(target)
    kept: list[int] = []
    one_sided: list[int] = []
    both_empty: list[int] = []
    for number, (left, right) in enumerate(zip(source, target, strict=True), start=1):
        blanks = is_blank(left) + is_blank(right)
        (kept, one_sided, both_empty)[blanks].append(number)
    return ParallelText(
        source=[source[number - 1] for number in kept],
        target=[target[number - 1] for number in kept],
        line_numbers=kept,
        num_lines=len(source),
        one_sided=one_sided,
        both_empty=both_empty,
    )


def fingerprint(paths: Iterable[str | Path]) -> dict[str, dict[str, str | int]]:
    """For each file its SHA-256 (of the bytes on disk, as ``sha256sum`` prints it) and its number of lines.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is not UTF-8.
    """
    prints: dict[str, dict[str, str | int]] = {}
    for path in paths:
        found = find_file(path)
        with found.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        prints[str(found)] = {"sha256": digest, "lines": count_lines(found)}
    return prints


def listed_lines(numbers: Sequence[int]) -> str:
    """Line numbers for a message: the first ten, and how many more there are."""
    word = "line" if len(numbers) == 1 else "lines"
    shown = ", ".join(str(number) for number in numbers[:_LISTED])
    more = f" and {len(numbers) - _LISTED} more" if len(numbers) > _LISTED else ""
    return f"{word} {shown}{more}"


def _unequal(source_path: str | Path, source: list[str], target_path: str | Path, target: list[str]) -> str:
    counts = f"{source_path} has {len(source)} lines but {target_path} has {len(target)}; expected the same number"
    longer = source_path if len(source) > len(target) else target_path
    if not source or not target:
        return f"{counts}, as line n of one translates line n of the other: one of the files is empty"
    shift = first_shifted_line(source, target)
    if shift is None:
        shorter = min(len(source), len(target))
        return (
            f"{counts}. The files look parallel up to line {shorter}, where the shorter one ends; "
            f"compare the end of {longer} from line {shorter + 1} on"
        )
    return (
        f"{counts}. They first look shifted near line {shift}, where {longer} seems to have a line too many "
        f"or the other one too few: {source[shift - 1]!r:.60} against {target[shift - 1]!r:.60}"
    )
