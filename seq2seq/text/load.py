"""A tokenizer read back from the folder that its files were written to."""

from pathlib import Path
from typing import Any

from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.tokenizer import Tokenizer


def load_tokenizer(folder: str | Path, side: str, described: dict[str, Any]) -> Tokenizer:
    """The tokenizer of one side, refused when it is not the one that was described.

    Args:
        folder: Where the files that `Tokenizer.files` gave stand.
        side: "source" or "target".
        described: What `Tokenizer.describe` said of it. Without a `format`, as older bundles have it, SentencePiece.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the format is not known, or the files are others than those described.
    """
    folder = Path(folder)
    tokenizer = _read(folder, side, described)
    if tokenizer.sha256 != described["sha256"]:
        names = " and ".join(str(folder / name) for name in tokenizer.files(side))
        raise ValueError(
            f"{names} is not the tokenizer that the model was trained with: it has {tokenizer.vocab_size} pieces and "
            f"SHA-256 {tokenizer.sha256[:12]}, expected {described['vocab_size']} pieces and "
            f"{described['sha256'][:12]}; put the original file back"
        )
    return tokenizer


def _read(folder: Path, side: str, described: dict[str, Any]) -> Tokenizer:
    format_ = described.get("format", SentencePieceTokenizer.format)
    if format_ == SentencePieceTokenizer.format:
        return SentencePieceTokenizer(_content(folder / f"{side}.spm"), str(folder / f"{side}.spm"))
    raise ValueError(
        f"the {side} tokenizer in {folder} has format {format_!r}, this package reads "
        f"{SentencePieceTokenizer.format}; update seq2seq"
    )


def _content(file: Path) -> bytes:
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing; expected the tokenizer that the model was saved with")
    return file.read_bytes()
