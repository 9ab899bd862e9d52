"""What each piece of a vocabulary adds to a text."""

import functools
import re

from seq2seq.text.tokenizer import Tokenizer

BROKEN = "\ufffd"
"""Stands in a text for bytes that are no character."""

_BYTE = re.compile("<0x([0-9A-F]{2})>")


@functools.lru_cache(maxsize=8)
def piece_bytes(tokenizer: Tokenizer) -> tuple[bytes, ...]:
    """The UTF-8 bytes that each piece adds to a text which goes on before and behind it; none for special pieces.

    Joined, those of any ids are the bytes of the text that `Tokenizer.decode_text` makes of them, but for spaces at the
    ends of it, and around bytes that are no character.
    """
    ids = range(tokenizer.vocab_size)
    anchor = _anchor(tokenizer)
    left = tokenizer.decode_text([anchor])
    right = tokenizer.decode_text([anchor, anchor])[len(left) :]
    found = []
    for id_, piece in zip(ids, tokenizer.pieces(ids), strict=True):
        text = tokenizer.decode_text([anchor, id_, anchor])
        assert text.startswith(left), f"{text!r} does not start with {left!r}"
        assert text.endswith(right), f"{text!r} does not end with {right!r}"
        text = text[len(left) : len(text) - len(right)]
        found.append(_spelled(piece) if BROKEN in text else text.encode())
    return tuple(found)


def _anchor(tokenizer: Tokenizer) -> int:
    """A piece that pieces can stand between."""
    for id_, piece in enumerate(tokenizer.pieces(range(tokenizer.vocab_size))):
        if piece.strip("\u2581").isalpha() and tokenizer.decode_text([id_]):
            return id_
    raise ValueError(f"the target tokenizer's {tokenizer.vocab_size} pieces have no letters; expected some")


def _spelled(piece: str) -> bytes:
    """The bytes of a piece some of which are no character, from how it is shown to people."""
    parts = _BYTE.split(piece.replace("\u2581", " "))
    return b"".join(bytes([int(part, 16)]) if at % 2 else part.encode() for at, part in enumerate(parts))
