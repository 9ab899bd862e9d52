"""A tokenizer read back from the folder that its files were written to."""

from pathlib import Path
from typing import Any

from seq2seq.text.hugging_face import Conventions, HuggingFaceTokenizer
from seq2seq.text.marian import MarianTokenizer
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.special import SpecialIds
from seq2seq.text.tokenizer import Tokenizer

_FORMATS: dict[str, dict[str, tuple[str, ...]]] = {
    SentencePieceTokenizer.format: {"source": ("source.spm",), "target": ("target.spm",)},
    MarianTokenizer.format: {
        "source": ("source.spm", "vocab.json"),
        "target": ("target.spm", "target_vocab.json"),
    },
    HuggingFaceTokenizer.format: {"source": ("tokenizer.json",), "target": ("target_tokenizer.json",)},
}
"""The names that `Tokenizer.files` gives, in the order of the constructors' parameters."""


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
        first, *others = tokenizer.files(side)
        names = f"{folder / first} with {' and '.join(others)}" if others else str(folder / first)
        raise ValueError(
            f"{names} is not the tokenizer that the model was trained with: it has {tokenizer.vocab_size} pieces and "
            f"SHA-256 {tokenizer.sha256[:12]}, expected {described['vocab_size']} pieces and "
            f"{described['sha256'][:12]}; put the original back"
        )
    return tokenizer


def _read(folder: Path, side: str, described: dict[str, Any]) -> Tokenizer:
    format_ = described.get("format", SentencePieceTokenizer.format)
    if format_ not in _FORMATS:
        raise ValueError(
            f"the {side} tokenizer in {folder} has format {format_!r}, this package reads {', '.join(_FORMATS)}; "
            "update seq2seq"
        )
    names = _FORMATS[format_][side]
    first, *others = (_content(folder / name) for name in names)
    name = str(folder / names[0])
    if format_ == SentencePieceTokenizer.format:
        return SentencePieceTokenizer(first, name)
    try:
        special = SpecialIds(**described["special_ids"])
        if format_ == MarianTokenizer.format:
            return MarianTokenizer(first, others[0], special.bos, name)
        conventions = Conventions(special, described["adds_bos"], tuple(described["stop_ids"]))
    except (KeyError, TypeError) as problem:
        raise ValueError(
            f"what is said of the {side} tokenizer in {folder} is damaged ({problem!r}); expected special_ids, and "
            "with format huggingface adds_bos and stop_ids: put the original config.json back"
        ) from problem
    return HuggingFaceTokenizer(first, conventions, name)


def _content(file: Path) -> bytes:
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing; expected the tokenizer that the model was saved with")
    return file.read_bytes()
