"""How words are written in pieces: at the start of a text, behind a space, or right behind another character."""

import functools
import re
from dataclasses import dataclass

from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.words import in_word

# What may stand before a word without a space; the first one that the tokenizer knows and keeps apart is taken.
_BEFORE = '("-.:'
_BYTE = re.compile("<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class Spelling:
    """One way to write words in pieces."""

    ids: tuple[int, ...]
    """The pieces."""
    whole_start: bool
    """Whether the piece before must not end in a word, as the words would be joined to it."""
    whole_end: bool
    """Whether the piece behind must not go on with a word."""


@dataclass(frozen=True)
class Joints:
    """Which pieces can be joined to one word where they follow one another."""

    opening: frozenset[int]
    """Ids of pieces that end in a word, which the next piece may go on with."""
    continuing: frozenset[int]
    """Ids of pieces that go on with a word that the piece before has left open."""


@functools.lru_cache(maxsize=4096)
def spellings(tokenizer: Tokenizer, words: str) -> tuple[Spelling, ...]:
    """All the ways in which the tokenizer writes the words, wherever in a text they stand; none twice.

    Other ways to cut the same words into pieces, which spell the same text, are not among them.

    Args:
        tokenizer: Of the target language.
        words: One or more, written as in a text.

    Raises:
        ValueError: if the tokenizer leaves nothing of them, or has no pieces for one of their characters.
    """
    words = " ".join(words.split())
    found = [tokenizer.encode(words), _behind(tokenizer, " " + words), _behind(tokenizer, words)]
    if not found[0]:
        raise ValueError(f"the tokenizer's normalisation leaves nothing of {words!r}; expected words")
    if tokenizer.special.unk in found[0]:
        raise ValueError(
            f"{words!r} has characters that the target tokenizer has no pieces for, so that no translation contains "
            f"it (it reads {' '.join(tokenizer.pieces(found[0]))!r}); write it in other characters"
        )
    return tuple(_spelling(tokenizer, ids, words) for ids in dict.fromkeys(map(tuple, found)) if ids)


@functools.lru_cache(maxsize=8)
def joints(tokenizer: Tokenizer) -> Joints:
    """Which of its pieces begin and end inside words.

    The unknown piece, and bytes of other characters than ASCII, are taken for letters, as most of them are.
    """
    special = tokenizer.special
    without_text = {special.pad, special.bos, special.eos, *tokenizer.stop}
    opening, continuing = set(), set()
    for id_, piece in enumerate(tokenizer.pieces(range(tokenizer.vocab_size))):
        if id_ in without_text or not piece:
            continue
        first, last = _edges(piece)
        if id_ == special.unk or _is_letter(last):
            opening.add(id_)
        if id_ == special.unk or _is_letter(first):
            continuing.add(id_)
    return Joints(frozenset(opening), frozenset(continuing))


def _behind(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text that stands right behind another character; none if no such character is kept apart from it."""
    for before in _BEFORE:
        ids, both = tokenizer.encode(before), tokenizer.encode(before + text)
        # An unknown piece might be one for both characters.
        if tokenizer.special.unk not in both and len(both) > len(ids) and both[: len(ids)] == ids:
            return both[len(ids) :]
    return []


def _spelling(tokenizer: Tokenizer, ids: tuple[int, ...], words: str) -> Spelling:
    """What has to be on either side of these pieces, so that they are whole words."""
    pieces = tokenizer.pieces(ids)
    start, end = _edges(pieces[0])[0], _edges(pieces[-1])[1]
    # A byte does not tell which character it belongs to; the words do.
    return Spelling(
        ids,
        whole_start=in_word(words[0] if isinstance(start, int) else start),
        whole_end=in_word(words[-1] if isinstance(end, int) else end),
    )


def _edges(piece: str) -> tuple[str | int, str | int]:
    """The first and the last character of a piece, or what byte it is."""
    if "<0x" not in piece:
        return piece[0], piece[-1]
    bytes_ = [(match.start(), match.end(), int(match[1], 16)) for match in _BYTE.finditer(piece)]
    first: str | int = bytes_[0][2] if bytes_ and bytes_[0][0] == 0 else piece[0]
    last: str | int = bytes_[-1][2] if bytes_ and bytes_[-1][1] == len(piece) else piece[-1]
    return first, last


def _is_letter(edge: str | int) -> bool:
    return in_word(edge) if isinstance(edge, str) else edge >= 0x80 or in_word(chr(edge))
