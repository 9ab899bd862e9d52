"""Which words of a line its pieces belong to. Words are what stands between spaces, as `str.split` finds them."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from seq2seq.text.tokenizer import Tokenizer

_WITHOUT_SPACES = frozenset({"zh", "ja"})


def is_spaced(language: str | None) -> bool:
    """Whether a language is written with spaces, as all but Chinese and Japanese are taken to be.

    Args:
        language: A code such as de, zh-CN or pt_BR; None if it is not known.
    """
    return (language or "").lower().replace("_", "-").split("-")[0] not in _WITHOUT_SPACES


def word_numbers(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
    """For each span the numbers of the words that it has a part of, in ascending order.

    A span of nothing, or of spaces, goes with the word that comes next, behind the last word with that. Only in a text
    without words there is no number.
    """
    number_at, words = [], 0  # of the word that a character belongs to, or the next one
    for at, character in enumerate(text):
        if at and character.isspace() and not text[at - 1].isspace():
            words += 1
        number_at.append(words)
    count = len(text.split())
    found = []
    for start, end in spans:
        inside = sorted({number_at[at] for at in range(start, end) if not text[at].isspace()})
        following = number_at[start] if start < len(text) else count
        found.append(tuple(inside) or ((min(following, count - 1),) if count else ()))
    return found


@dataclass(frozen=True)
class SourceWords:
    """The words of a source line, by its pieces."""

    text: str
    """The line."""
    spans: list[tuple[int, int]]
    """Where each piece stands in it; EOS is none of them."""
    words: list[str]
    """The line, split at spaces; where it is written without, what each piece stands for."""
    numbers: list[tuple[int, ...]]
    """For each piece the numbers of its words."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, text: str, *, spaced: bool) -> "SourceWords":
        """The words of a line.

        Args:
            tokenizer: Cuts it into pieces.
            text: The line.
            spaced: Whether it is written with spaces; otherwise each piece is a word.
        """
        spans = tokenizer.spans(text)
        if spaced:
            return cls(text, spans, text.split(), word_numbers(text, spans))
        return cls(text, spans, [text[start:end] for start, end in spans], [(place,) for place in range(len(spans))])

    def copied(self, place: int, *, part: bool) -> str:
        """What is written in a translation for what stands at a piece.

        Args:
            place: Number of the piece in the line.
            part: Take what the piece itself stands for, rather than the word, if that is anything.
        """
        start, end = self.spans[place]
        own = self.text[start:end].strip()
        if part and own:
            return own
        word = self.words[self.numbers[place][0]].strip()
        return _without_punctuation(word) or word


def _without_punctuation(word: str) -> str:
    """The word without punctuation marks at its ends."""
    marked = [at for at, character in enumerate(word) if unicodedata.category(character)[0] != "P"]
    return word[marked[0] : marked[-1] + 1] if marked else ""
