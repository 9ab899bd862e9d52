"""Plain text read as documents, and the end of it held out for validation."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path

from seq2seq.config import Documents
from seq2seq.text.lines import is_blank, read_lines


@dataclass(frozen=True)
class TextSize:
    """How much text a loss is divided by."""

    characters: int
    """Unicode code points, line feeds included."""
    bytes: int
    """The same in UTF-8."""

    @staticmethod
    def of(documents: Sequence[str]) -> "TextSize":
        """The size of all documents together."""
        return TextSize(sum(map(len, documents)), sum(len(document.encode("utf-8")) for document in documents))


def read_documents(path: str | Path, kind: Documents) -> list[str]:
    """The documents of a file, blank ones left out.

    Args:
        path: Text, plain or ``.gz``; every line is read as ended by one LF.
        kind: file: all of it is one document, with its line feeds. paragraph: what stands between blank lines, without
            a last line feed. line: each line, without its line feed.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not UTF-8, or nothing in it can be seen.
    """
    lines = read_lines(path)
    if kind is Documents.file:
        documents = ["".join(line + "\n" for line in lines)] if not all(map(is_blank, lines)) else []
    elif kind is Documents.paragraph:
        documents = ["\n".join(group) for blank, group in groupby(lines, key=is_blank) if not blank]
    else:
        documents = [line for line in lines if not is_blank(line)]
    if not documents:
        raise ValueError(f"{path} has no text ({len(lines)} lines, all blank); expected text to train on")
    return documents


def hold_out(documents: Sequence[str], kind: Documents, share: float) -> tuple[list[str], list[str]]:
    """The text to train on and the text to validate on: the first part and the rest, which is about `share` of it.

    The cut is at the border nearest to that share: of lines within the one document of a file, else of documents.

    Args:
        documents: As `read_documents` gives them.
        kind: What one document is.
        share: Of the characters.

    Raises:
        ValueError: if there is no border to cut at.
    """
    parts = list(documents)
    if kind is Documents.file:
        parts = [line + "\n" for line in documents[0].removesuffix("\n").split("\n")]
    if len(parts) < 2:
        what = "line" if kind is Documents.file else "document"
        raise ValueError(
            f"the training text is one {what}, of which nothing can be held out for validation; give data.valid_text"
        )
    borders = list(accumulate(map(len, parts)))
    wanted = (1 - share) * borders[-1]
    cut = 1 + min(range(len(borders) - 1), key=lambda i: abs(borders[i] - wanted))
    train, valid = parts[:cut], parts[cut:]
    return (["".join(train)], ["".join(valid)]) if kind is Documents.file else (train, valid)
