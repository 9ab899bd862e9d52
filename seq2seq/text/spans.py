"""Where the pieces of a text stand in it, as SentencePiece tells it.

The library answers with a protocol buffer (``SentencePieceText`` in ``sentencepiece.proto``), which is read here
without the protobuf package, as `model_file` reads models.
"""

from collections.abc import Iterator

from seq2seq.text.model_file import fields

_PIECES = 2  # field of SentencePieceText
_SURFACE, _BEGIN, _END = 3, 4, 5  # fields of its pieces


def read_surfaces(message: bytes) -> list[str]:
    """The part of the text that each piece stands for; bytes that are not UTF-8 become U+FFFD."""
    surfaces = (piece.get(_SURFACE, b"") for piece in _pieces(message))
    return [surface.decode("utf-8", errors="replace") for surface in surfaces if isinstance(surface, bytes)]


def read_spans(message: bytes, line: str) -> list[tuple[int, int]]:
    """Start and end of each piece in the line that was encoded, in characters."""
    places = {0: 0}
    at = 0
    for number, character in enumerate(line, start=1):
        at += len(character.encode("utf-8"))
        places[at] = number
    return [(places[int(piece.get(_BEGIN, 0))], places[int(piece.get(_END, 0))]) for piece in _pieces(message)]


def _pieces(message: bytes) -> Iterator[dict[int, int | bytes]]:
    """The fields of each piece."""
    for number, value in fields(message):
        if number == _PIECES and isinstance(value, bytes):
            yield dict(fields(value))
