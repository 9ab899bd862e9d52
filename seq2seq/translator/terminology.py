"""Phrases that translations must contain, from files: a list for each line, or a terminology that lines are read by."""

import unicodedata
from collections.abc import Mapping
from pathlib import Path

from seq2seq.text.lines import read_lines
from seq2seq.text.words import is_whole
from seq2seq.translator.request import alternatives


def read_phrases(path: str | Path) -> list[tuple[str, ...]]:
    """The phrases of each input line, for `Request.phrases`: line n of the file is for line n of the input.

    Phrases are separated by tabs. An empty line asks for nothing, as does what is empty between two tabs. ``a|b`` is a
    phrase of which one alternative is enough. There are no comments and no quotes: all other characters are text.

    Args:
        path: A text file in UTF-8, plain or gzip.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not UTF-8, or an alternative is empty.
    """
    found = []
    for number, line in enumerate(read_lines(path), start=1):
        phrases = split_phrases(line)
        for phrase in phrases:
            try:
                alternatives(phrase)
            except ValueError as error:
                raise ValueError(f"{path}: line {number}: {error}") from None
        found.append(phrases)
    return found


def split_phrases(line: str) -> tuple[str, ...]:
    """The phrases of one line of such a file."""
    return tuple(phrase.strip() for phrase in line.split("\t") if phrase.strip())


class Terminology:
    """How terms of the source language are to be translated.

    Args:
        terms: From each term of the source language to its translation; ``a|b`` allows either.
        fold_case: Whether a term is also found where capitals and small letters differ.

    Raises:
        ValueError: if a side is blank, or two terms are the same and their translations are not.
    """

    def __init__(self, terms: Mapping[str, str], *, fold_case: bool = False) -> None:
        self._fold_case = fold_case
        self._terms: dict[str, str] = {}
        self._lengths: set[int] = set()
        for source, target in terms.items():
            self._add(source, target)

    @classmethod
    def load(cls, path: str | Path, *, fold_case: bool = False) -> "Terminology":
        """The terminology in a file of lines ``source term<TAB>target term``.

        Empty lines and lines that begin with ``#`` are passed over. There are no quotes.

        Args:
            path: A text file in UTF-8, plain or gzip.
            fold_case: As in the constructor.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is not UTF-8, has no term, or a line is not a term and its translation, or contradicts an
                earlier one; the line is named.
        """
        found = cls({}, fold_case=fold_case)
        lines_of: dict[str, int] = {}
        for number, line in enumerate(read_lines(path), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            fields = line.split("\t")
            if len(fields) != 2:
                raise ValueError(
                    f"{path}: line {number} has {len(fields)} fields, expected 2: a term, a tab, its translation; "
                    "write alternatives of the translation as a|b"
                )
            try:
                term = found._add(*fields)
            except ValueError as error:
                earlier = lines_of.get(found._normal(fields[0]))
                first = "" if earlier is None else f"; line {earlier} has the other"
                raise ValueError(f"{path}: line {number}: {error}{first}") from None
            lines_of.setdefault(term, number)
        if not len(found):
            raise ValueError(f"{path} has no terms, expected lines of a term, a tab and its translation")
        return found

    def __len__(self) -> int:
        """Terms."""
        return len(self._terms)

    def phrases(self, line: str) -> tuple[str, ...]:
        """What the translation of a source line must contain: the translations of the terms in it.

        Use it as ``Request(line, phrases=terminology.phrases(line))``. Terms are found as whole words, whatever spaces
        are between these; in Chinese, Japanese and other languages without spaces a term may stand anywhere. Longer
        terms go first, and words that belong to one are not looked at again. Translations come in the order in which
        their terms stand in the line, each once.
        """
        text = self._normal(line)
        found: list[tuple[int, int]] = []
        for start, end in sorted(self._matches(text), key=lambda span: (span[0] - span[1], span[0])):
            if all(end <= other_start or other_end <= start for other_start, other_end in found):
                found.append((start, end))
        return tuple(dict.fromkeys(self._terms[text[start:end]] for start, end in sorted(found)))

    def _matches(self, text: str) -> list[tuple[int, int]]:
        """Where terms stand as whole words, also one inside another."""
        return [
            (start, start + length)
            for start in range(len(text))
            for length in self._lengths
            if start + length <= len(text)
            and text[start : start + length] in self._terms
            and is_whole(text, start, start + length)
        ]

    def _add(self, source: str, target: str) -> str:
        """Take up a term; the form in which it is looked for."""
        term, target = self._normal(source), target.strip()
        if not term or not target:
            raise ValueError(f"got the term {source!r} and the translation {target!r}, expected words on both sides")
        alternatives(target)
        known = self._terms.setdefault(term, target)
        if known != target:
            raise ValueError(
                f"the term {source.strip()!r} is to be {target!r} and {known!r}; write one line, with {known}|{target} "
                "if either will do"
            )
        self._lengths.add(len(term))
        return term

    def _normal(self, text: str) -> str:
        """The text in the form in which terms are compared: NFKC, single spaces, case folded if so wanted."""
        text = unicodedata.normalize("NFKC", text)
        return " ".join((text.casefold() if self._fold_case else text).split())
