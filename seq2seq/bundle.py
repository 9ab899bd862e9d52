"""A trained model on disk: one folder that every command takes, on any machine, read without unpickling anything.

bundle/
    config.json          format version, options, tokenizers' checksums, where the weights come from
    model.safetensors    every weight once, tied ones too
    source.spm           SentencePiece model of the source side
    target.spm           the same for the target side; absent with a joint vocabulary
"""

import dataclasses
import json
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model

from seq2seq.config import DecodeConfig, ModelConfig, from_dict, to_dict
from seq2seq.models import Transformer, build_model
from seq2seq.text.tokenizer import Tokenizer

FORMAT_VERSION = 1
"""Raised when a bundle written by this package can no longer be read by an older one."""

CONFIG_FILE, WEIGHTS_FILE, SOURCE_FILE, TARGET_FILE = "config.json", "model.safetensors", "source.spm", "target.spm"

ARCHITECTURE = "encoder_decoder"
"""The one kind of network that there is so far."""

_KEYS: dict[str, tuple[type, ...]] = {
    "architecture": (str,),
    "source_lang": (str, type(None)),
    "target_lang": (str, type(None)),
    "joint": (bool,),
    "source_tokenizer": (dict,),
    "target_tokenizer": (dict,),
    "model": (dict,),
    "decode": (dict,),
    "provenance": (dict,),
}
"""What config.json has beside its format version, and of which types."""


@dataclass(frozen=True)
class Bundle:
    """A model with all that it takes to use it.

    Attributes:
        model: The network.
        model_config: The options that it was built from.
        source_tokenizer: Text to ids on the source side.
        target_tokenizer: Ids to text on the target side; the same object with a joint vocabulary.
        decode: Search options that `translate` uses unless told otherwise.
        languages: Language codes of source and target, where known.
        provenance: Plain facts about the training: package versions, data fingerprint, step, validation scores.
    """

    model: Transformer
    model_config: ModelConfig
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    languages: tuple[str | None, str | None] = (None, None)
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def joint(self) -> bool:
        """Whether both sides have one vocabulary."""
        return self.source_tokenizer.sha256 == self.target_tokenizer.sha256


def save_bundle(bundle: Bundle, path: str | Path) -> None:
    """Write the bundle as a folder, whole or not at all; an older bundle at `path` is replaced.

    Raises:
        ValueError: if something that is not a bundle is at `path`.
        OSError: if it cannot be written; nothing is left then.
    """
    path = Path(path).resolve()
    if path.exists() and not _is_bundle(path):
        raise ValueError(f"{path} exists and is not a bundle; choose another place or remove it first")
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        os.chmod(scratch, 0o755)
        try:
            save_model(bundle.model, str(scratch / WEIGHTS_FILE))
        except SafetensorError as problem:  # its word for a full disk and the like
            raise OSError(f"the weights of {path} could not be written ({problem}); is the disk full?") from problem
        (scratch / SOURCE_FILE).write_bytes(bundle.source_tokenizer.model)
        if not bundle.joint:
            (scratch / TARGET_FILE).write_bytes(bundle.target_tokenizer.model)
        text = json.dumps(_describe(bundle), indent=2, ensure_ascii=False) + "\n"
        (scratch / CONFIG_FILE).write_text(text, encoding="utf-8")
        for file in scratch.iterdir():
            file.chmod(0o644)  # safetensors makes files that nobody else may read
        _put_in_place(scratch, path)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def load_bundle(path: str | Path, device: str | torch.device = "cpu") -> Bundle:
    """The bundle at `path`, its model in evaluation mode on `device`.

    Raises:
        FileNotFoundError: if `path` is not a bundle, or one of its files is missing.
        ValueError: if its format is newer than this package, or its parts do not fit together.
    """
    path = Path(path)
    config = read_config(path)
    if not (path / WEIGHTS_FILE).is_file():
        raise FileNotFoundError(
            f"{path / WEIGHTS_FILE} is missing; expected the weights that the bundle was saved with"
        )
    source = _load_tokenizer(path / SOURCE_FILE, config["source_tokenizer"])
    target = source if config["joint"] else _load_tokenizer(path / TARGET_FILE, config["target_tokenizer"])
    model_config = from_dict(ModelConfig, config["model"], where="model.")
    model = build_model(model_config, source.vocab_size, target.vocab_size)
    try:
        load_model(model, str(path / WEIGHTS_FILE))
    except (RuntimeError, SafetensorError) as problem:
        raise ValueError(
            f"{path / WEIGHTS_FILE} does not fit {path / CONFIG_FILE} and a vocabulary of {source.vocab_size} source "
            f"and {target.vocab_size} target pieces; expected the weights that were saved with them ({_first(problem)})"
        ) from problem
    return Bundle(
        model=model.to(device).eval(),
        model_config=model_config,
        source_tokenizer=source,
        target_tokenizer=target,
        decode=from_dict(DecodeConfig, config["decode"], where="decode."),
        languages=(config["source_lang"], config["target_lang"]),
        provenance=config["provenance"],
    )


def read_config(path: str | Path) -> dict[str, Any]:
    """The contents of a bundle's config.json.

    Raises:
        FileNotFoundError: if `path` is not a bundle.
        ValueError: if the file is damaged or its format is newer than this package.
    """
    file = Path(path) / CONFIG_FILE
    if not file.is_file():
        inside = Path(path) / "bundle"
        hint = f"; did you mean {inside}?" if (inside / CONFIG_FILE).is_file() else ""
        raise FileNotFoundError(
            f"{path} is not a bundle: it has no {CONFIG_FILE}; expected the folder `bundle` that `seq2seq train` "
            f"writes{hint}"
        )
    try:
        config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        version = int(config["format_version"])
    except (ValueError, KeyError, TypeError) as problem:
        raise ValueError(f"{file} is damaged: {problem!r}; expected JSON with a format_version") from problem
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{file} has format version {version}, this package reads up to {FORMAT_VERSION}; update seq2seq"
        )
    missing = [key for key in _KEYS if key not in config]
    if missing:
        raise ValueError(f"{file} is damaged: it lacks {', '.join(missing)}; save the bundle again")
    for key, types in _KEYS.items():
        if not isinstance(config[key], types):
            names = " or ".join("null" if kind is type(None) else kind.__name__ for kind in types)
            raise ValueError(
                f"{file} is damaged: {key} is {config[key]!r:.40}, expected {names}; put the original file back"
            )
    for key in ("source_tokenizer", "target_tokenizer"):
        if not isinstance(config[key].get("sha256"), str) or not isinstance(config[key].get("vocab_size"), int):
            raise ValueError(f"{file} is damaged: {key} lacks its sha256 or vocab_size; put the original file back")
    if config["architecture"] != ARCHITECTURE:
        raise ValueError(
            f"{file} has architecture {config['architecture']!r}, this package reads {ARCHITECTURE!r}; update seq2seq"
        )
    return config


def _first(problem: Exception) -> str:
    """The first thing that a loader found; torch names every tensor that does not fit, on a line each."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    shown = " ".join(lines[:2])
    return f"{shown:.300} ... and {len(lines) - 2} more" if len(lines) > 2 else f"{shown:.300}"


def _is_bundle(path: Path) -> bool:
    """Whether the folder may be replaced by a bundle. Other people's models have a config.json too."""
    try:
        return "format_version" in json.loads((path / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def _put_in_place(scratch: Path, path: Path) -> None:
    """Rename the finished folder to `path`. An older bundle is put aside first, and deleted last."""
    if not path.exists():
        scratch.rename(path)
        return
    old = scratch.with_name(scratch.name + ".old")
    path.rename(old)
    try:
        scratch.rename(path)
    except BaseException:
        old.rename(path)
        raise
    shutil.rmtree(old)


def _describe(bundle: Bundle) -> dict[str, Any]:
    source_lang, target_lang = bundle.languages
    return {
        "format_version": FORMAT_VERSION,
        "architecture": ARCHITECTURE,
        "source_lang": source_lang,
        "target_lang": target_lang,
        "joint": bundle.joint,
        "source_tokenizer": _describe_tokenizer(bundle.source_tokenizer),
        "target_tokenizer": _describe_tokenizer(bundle.target_tokenizer),
        "model": to_dict(bundle.model_config),
        "decode": to_dict(bundle.decode),
        "provenance": bundle.provenance,
    }


def _describe_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "kind": tokenizer.kind.name,
        "vocab_size": tokenizer.vocab_size,
        "normalization": tokenizer.normalization,
        "special_ids": dataclasses.asdict(tokenizer.special),
        "sha256": tokenizer.sha256,
    }


def _load_tokenizer(file: Path, described: dict[str, Any]) -> Tokenizer:
    """The tokenizer in `file`, refused when it is not the one that the model was trained with."""
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing; expected the tokenizer that the bundle was saved with")
    tokenizer = Tokenizer.load(file)
    if tokenizer.sha256 != described["sha256"]:
        raise ValueError(
            f"{file} is not the tokenizer that the model was trained with: it has {tokenizer.vocab_size} pieces and "
            f"SHA-256 {tokenizer.sha256[:12]}, expected {described['vocab_size']} pieces and "
            f"{described['sha256'][:12]}; put the original file back"
        )
    return tokenizer
