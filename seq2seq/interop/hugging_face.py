"""Hugging Face folders of MarianMT, GPT-2, LLaMA and Qwen models, read; `hugging_face_export` writes them.

What is promised of the way in and out again, with nothing trained between: every tensor that today's `transformers`
writes for the model comes back under the same name, in the same precision and layout, byte for byte; config.json,
generation_config.json and the tokenizer's files come back with the same contents. Not kept: into how many files the
weights were split, copies of tied weights and constant tables that older versions wrote, and files that are neither
(README, licence).

Weights are computed with in float32. What is stored in float16 or bfloat16 is converted, which loses nothing; how it
was stored is remembered, and written again unless training has changed the weights.
"""

import logging
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from seq2seq.bundle import Bundle
from seq2seq.config import ModelConfig, Task
from seq2seq.interop.families import FAMILIES, Family, read_options
from seq2seq.interop.families_options import Options
from seq2seq.interop.hugging_face_decode import read_decode
from seq2seq.interop.hugging_face_files import read_json
from seq2seq.interop.hugging_face_tokenizer import read_tokenizers
from seq2seq.interop.hugging_face_weights import TensorFiles, fill
from seq2seq.models import build_model

CONFIG_FILE, GENERATION_FILE = "config.json", "generation_config.json"
PROVENANCE = "hugging_face"
"""Key of a bundle's provenance under which stands what an import has no option for, so that an export has it again."""
TASK = "seq2seq_task"
"""Key of config.json that tells a translating decoder-only model, which no family has a word for, from the others."""

_log = logging.getLogger(__name__)


def is_hugging_face(folder: str | Path) -> bool:
    """Whether the folder has a config.json that names a `model_type`, of whatever family."""
    try:
        return isinstance(read_json(Path(folder) / CONFIG_FILE).get("model_type"), str)
    except (OSError, ValueError):
        return False


def import_hugging_face(folder: str | Path) -> Bundle:
    """The model in a Hugging Face folder, in float32 and in evaluation mode, with its tokenizer and search options.

    A warning is logged for search options that are in effect there and that this package does not have.

    Args:
        folder: With config.json, model.safetensors (or its parts and their index), and the tokenizer's files.

    Raises:
        FileNotFoundError: if one of these files is missing.
        ValueError: if the model is of another family, has an option that this package does not have, its weights are
            pickled, its files do not fit together, or its tokenizer needs the package tokenizers and that is missing.
    """
    folder = Path(folder)
    options = read_json(folder / CONFIG_FILE)
    family = _family_of(folder, options)
    try:
        config = read_options(family, options)
    except (ValueError, TypeError) as problem:
        raise ValueError(f"{folder / CONFIG_FILE}: {problem}") from problem
    generation = read_json(folder / GENERATION_FILE) if (folder / GENERATION_FILE).is_file() else None
    source, target, tokenizer_options = read_tokenizers(folder, family, options, generation or {})
    tensors = TensorFiles(folder, family.prefix)
    sizes = _rows(tensors, family, config)
    config = replace(config, vocab_multiple=_multiple((source.vocab_size, target.vocab_size), sizes))
    model = build_model(config, source.vocab_size, target.vocab_size)
    stored = fill(model, config, family, tensors)
    special = target.special
    try:
        decode, unread = read_decode(options if generation is None else generation, (special.pad, special.bos))
    except (ValueError, TypeError) as problem:
        file = folder / (CONFIG_FILE if generation is None else GENERATION_FILE)
        raise ValueError(f"{file}: {problem}; correct its search options, or take them out") from problem
    if unread and family.model_type == "marian":
        _log.warning("%s: this package searches without %s", folder, ", ".join(unread))
    if family.model_type == "marian":
        decode = replace(decode, max_source_length=options.get("max_position_embeddings", 1024))
    usual, others = _precisions(stored)
    return Bundle(
        model=model.eval(),
        model_config=config,
        source_tokenizer=source,
        target_tokenizer=target,
        decode=decode,
        languages=_languages(tokenizer_options or {}),
        provenance={
            PROVENANCE: {
                "config": options,
                "generation_config": generation,
                "tokenizer_config": tokenizer_options,
                "precision": usual,
                "other_precisions": others,
            }
        },
        task=_task(family, options),
    )


def _family_of(folder: Path, options: Options) -> Family:
    model_type = options.get("model_type")
    if model_type not in FAMILIES:
        raise ValueError(
            f"{folder / CONFIG_FILE} has model_type={model_type!r}; this package reads {', '.join(FAMILIES)}"
        )
    return FAMILIES[model_type]


def _task(family: Family, options: Options) -> Task:
    """Marian translates, and so does a decoder-only model that was exported as one that does."""
    if family.model_type == "marian" or options.get(TASK) == Task.translation.name:
        return Task.translation
    return Task.language_model


def _languages(tokenizer_options: Options) -> tuple[str | None, str | None]:
    source, target = (tokenizer_options.get(key) for key in ("source_lang", "target_lang"))
    return source if isinstance(source, str) else None, target if isinstance(target, str) else None


def _rows(tensors: Mapping[str, Any], family: Family, config: ModelConfig) -> tuple[int, int]:
    """Rows of the source's table and of the target's, which may be more than the tokenizer has pieces."""
    names = {weight.ours: weight.theirs[0] for weight in family.weights(config)}
    target = names.get("decoder.embedding.rows.weight") or names["output"]
    source = names.get("encoder.embedding.rows.weight", target)
    for name in (source, target):
        if name not in tensors:
            raise ValueError(f"tensor {name} is missing; expected the embedding of a {family.class_name}")
    return len(tensors[source]), len(tensors[target])


def _multiple(sizes: tuple[int, int], rows: tuple[int, int]) -> int:
    """What the numbers of rows are multiples of, so that a table for so many pieces is built with so many rows."""
    if sizes == rows:
        return 1
    common = math.gcd(*rows)
    for multiple in (common // part for part in range(1, common + 1) if common % part == 0):
        if all(-(-size // multiple) * multiple == number for size, number in zip(sizes, rows, strict=True)):
            return multiple
    for size, number in zip(sizes, rows, strict=True):
        if size > number:
            raise ValueError(
                f"the tokenizer has {size} pieces, the model's embedding {number} rows; expected a row for each piece "
                "(in transformers: model.resize_token_embeddings(len(tokenizer)))"
            )
    raise ValueError(
        f"tokenizers of {sizes[0]} and {sizes[1]} pieces do not fit embeddings of {rows[0]} and {rows[1]} rows: no one "
        "multiple rounds both up; expected both vocabularies padded alike"
    )


def _precisions(stored: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The number format of most tensors, and those of the others."""
    usual = Counter(stored.values()).most_common(1)[0][0]
    return usual, {name: precision for name, precision in stored.items() if precision != usual}
