"""By what bundles are told apart: what their files hold, whatever they are called."""

import hashlib
from pathlib import Path

from seq2seq.bundle import read_config


def bundle_checksum(path: str | Path) -> str:
    """SHA-256 of the bundle's options, weights and tokenizers.

    Raises:
        FileNotFoundError: if `path` is not a bundle.
        ValueError: if it is damaged.
    """
    read_config(path)
    files = sorted(file for file in Path(path).iterdir() if file.is_file() and not file.name.startswith("."))
    return hashlib.sha256("\n".join(f"{file.name} {file_checksum(file)}" for file in files).encode()).hexdigest()


def file_checksum(path: str | Path) -> str:
    """SHA-256 of what the file holds."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
