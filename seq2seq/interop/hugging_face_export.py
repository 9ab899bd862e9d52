"""Bundles written as Hugging Face folders; `hugging_face` reads them and says what is promised of both together."""

import logging
from collections import Counter
from pathlib import Path
from typing import Any

from seq2seq.bundle import Bundle
from seq2seq.config import Architecture, ModelConfig, Task
from seq2seq.interop.families import FAMILIES, MARIAN, QWEN2, Family, write_options
from seq2seq.interop.families_options import Options
from seq2seq.interop.hugging_face import CONFIG_FILE, GENERATION_FILE, PROVENANCE, TASK, is_hugging_face
from seq2seq.interop.hugging_face_decode import read_decode, write_decode
from seq2seq.interop.hugging_face_files import as_json
from seq2seq.interop.hugging_face_order import in_halves
from seq2seq.interop.hugging_face_tokenizer import tokenizer_files
from seq2seq.interop.hugging_face_weights import in_precision, tensors_of, write_tensors
from seq2seq.text.hugging_face import HuggingFaceTokenizer
from seq2seq.text.new_folder import new_folder

_log = logging.getLogger(__name__)


def export_hugging_face(bundle: Bundle, folder: str | Path) -> None:
    """Write the bundle as a folder that `transformers` reads, whole or not at all; an older one is replaced.

    The family is the one that the model was imported from, or the first of MarianMT, GPT-2, Qwen 2, LLaMA and Qwen 3
    that it fits. The paper's sinusoids, sines and cosines in turn, are Marian's in another order of columns: such a
    model is written with its columns reordered, which computes the same up to rounding.

    A warning is logged for search options that have no counterpart there.

    Args:
        bundle: The model.
        folder: Where to write.

    Raises:
        ValueError: if the model fits none of them, with the options that do not fit, or its tokenizer cannot be
            written (without the package tokenizers, for one), or something else is at `folder`.
        OSError: if the folder cannot be written; nothing is left then.
    """
    bundle = in_halves(bundle)
    family, options, imported = _choose(bundle)
    tensors = tensors_of(bundle.model, bundle.model_config, family)
    stored = dict.fromkeys(tensors, imported.get("precision", "float32")) | imported.get("other_precisions", {})
    tensors = in_precision(tensors, stored)
    usual = Counter(str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()).most_common(1)[0][0]
    options[("torch_dtype" if "torch_dtype" in options else "dtype")] = usual
    _complete(options, bundle, family)
    files = tokenizer_files(bundle, family, imported.get("tokenizer_config"), bool(imported))
    files[CONFIG_FILE] = as_json(options)
    generation = _generation(bundle, family, options, imported)
    if generation is not None:
        files[GENERATION_FILE] = as_json(generation)
    with new_folder(folder, is_hugging_face, "a Hugging Face folder") as scratch:
        write_tensors(tensors, scratch)
        for name, content in files.items():
            (scratch / name).write_bytes(content)
        for file in scratch.iterdir():
            file.chmod(0o644)  # safetensors makes files that nobody else may read


def _choose(bundle: Bundle) -> tuple[Family, Options, dict[str, Any]]:
    """The family to write, its keys, and what an import from the same family left for it."""
    config = bundle.model_config
    imported = _imported(bundle.provenance)
    before = imported.get("config", {}).get("model_type")
    families = [family for family in FAMILIES.values() if family.fixed["architecture"] is config.architecture]
    families.sort(key=lambda family: family.model_type != before)
    refused: list[tuple[Family, list[str]]] = []
    for family in families:
        own = imported if family.model_type == before else {}
        options, misfits = write_options(family, config, own.get("config"))
        if family is QWEN2 and not isinstance(bundle.target_tokenizer, HuggingFaceTokenizer):
            # Whatever their files say, transformers reads tokenizers of qwen2 folders as Qwen's own.
            misfits.append(f"a tokenizer of format {bundle.target_tokenizer.format}; needs Qwen's")
        if not misfits:
            return family, options, own
        refused.append((family, misfits))
    nearest, misfits = min(refused, key=lambda pair: len(pair[1]))
    others = [family.model_type for family in families if family is not nearest]
    raise ValueError(
        f"this model fits no Hugging Face family. Nearest is {nearest.model_type}, but for {', '.join(misfits)}"
        + (f" (also tried: {', '.join(others)})" if others else "")
        + "; train with these options changed, or keep the bundle"
    )


def _imported(provenance: dict[str, Any]) -> dict[str, Any]:
    """What an import left, of this model or of the one that it was fine-tuned from."""
    while PROVENANCE not in provenance:
        if "init" not in provenance:
            return {}
        provenance = provenance["init"].get("provenance", {})
    found: dict[str, Any] = provenance[PROVENANCE]
    return found


def _complete(options: Options, bundle: Bundle, family: Family) -> None:
    """Add the keys that are not in the tables: sizes of the vocabulary, special ids, what names the family."""
    special = bundle.target_tokenizer.special
    target_rows = len(bundle.model.output)
    options["vocab_size"] = bundle.model.source_rows
    options.setdefault("architectures", [family.class_name])
    options.setdefault("model_type", family.model_type)
    options.setdefault("bos_token_id", special.bos)
    options.setdefault("eos_token_id", special.eos)
    options.setdefault("pad_token_id", special.pad)
    if family is MARIAN:
        if options.get("decoder_vocab_size") or target_rows != options["vocab_size"]:
            options["decoder_vocab_size"] = target_rows
        options["max_position_embeddings"] = bundle.decode.max_source_length
        options.setdefault("decoder_start_token_id", special.bos)
        options.setdefault("is_encoder_decoder", True)
    elif "max_positions" not in {name for row in family.rows for name in row.ours}:
        options.setdefault("max_position_embeddings", _trained_positions(bundle.model_config))
    options.pop(TASK, None)
    if bundle.task is Task.translation and bundle.model_config.architecture is Architecture.decoder_only:
        options[TASK] = Task.translation.name


def _trained_positions(config: ModelConfig) -> int:
    """How long texts may be, for readers that want a limit; rotary positions have none."""
    rope = config.rope
    return round(rope.factor * rope.original_positions) if rope.original_positions is not None else 4096


def _generation(bundle: Bundle, family: Family, options: Options, imported: dict[str, Any]) -> Options | None:
    """Contents of generation_config.json; None where the model was imported without one and needs none."""
    special, decode = bundle.target_tokenizer.special, bundle.decode
    suppressed = (special.pad, special.bos)
    if imported:
        original: Options | None = imported["generation_config"]
        if family is not MARIAN:
            return original
        before = read_decode(imported["config"] if original is None else original, suppressed)[0]
        if all(getattr(before, name) == getattr(decode, name) for name in _SEARCH):
            return original
    ids = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
    generation = {key: options[key] for key in ids if options.get(key) is not None}
    if family is MARIAN:
        search, unwritten = write_decode(decode, options["max_position_embeddings"])
        generation |= search | {"forced_eos_token_id": special.eos, "bad_words_ids": [[special.pad]]}
        if unwritten:
            _log.warning(
                "transformers has nothing for %s; it searches with length_penalty=%g",
                ", ".join(unwritten),
                search["length_penalty"],
            )
    return generation


_SEARCH = ("beam_size", "penalty_form", "length_penalty", "min_length", "max_length")
"""Our search options that Hugging Face has a word for."""
