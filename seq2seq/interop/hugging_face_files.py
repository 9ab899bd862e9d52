"""JSON files of Hugging Face folders."""

import json
from pathlib import Path

from seq2seq.interop.families_options import Options


def read_json(file: Path) -> Options:
    """The object in a JSON file.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing; expected the folder of a Hugging Face model, with all its files")
    try:
        content: Options = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise ValueError(f"{file} is damaged ({problem}); expected JSON") from problem
    if not isinstance(content, dict):
        raise ValueError(f"{file} is damaged: it holds {content!r:.40}; expected an object with options")
    return content


def as_json(options: Options) -> bytes:
    """The object as `transformers` writes it."""
    return (json.dumps(options, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")
