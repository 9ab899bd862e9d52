"""Hugging Face folders of MarianMT, GPT-2, LLaMA and Qwen models, in and out."""

import json
from pathlib import Path

from seq2seq.bundle import Bundle

CONFIG_FILE = "config.json"


def is_hugging_face(folder: str | Path) -> bool:
    """Whether the folder has a config.json that names a `model_type`, of whatever family."""
    try:
        config = json.loads((Path(folder) / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and isinstance(config.get("model_type"), str)


def import_hugging_face(folder: str | Path) -> Bundle:
    """The model in a Hugging Face folder, in float32 and in evaluation mode, with its tokenizer and search options."""
    raise NotImplementedError(folder)


def export_hugging_face(bundle: Bundle, folder: str | Path) -> None:
    """Write the bundle as a folder that `transformers` reads, whole or not at all."""
    raise NotImplementedError(folder)
