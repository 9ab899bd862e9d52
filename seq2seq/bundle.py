"""A trained model on disk: one folder that every command takes, on any machine, read without unpickling anything.

bundle/
    config.json          format version, options, tokenizers' checksums, where the weights come from
    model.safetensors    every weight once, tied ones too
    source.spm           tokenizer of the source side (see `Tokenizer.files` for the other formats)
    target.spm           the same for the target side; absent where one tokenizer serves both
    shortlist.safetensors  if `seq2seq data shortlist` has made one: target pieces to choose from, for each source piece
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from torch.nn import init
from torch.overrides import TorchFunctionMode

from seq2seq.config import Architecture, DecodeConfig, ModelConfig, Task, from_dict, to_dict
from seq2seq.corpus.shortlist import FILE as SHORTLIST_FILE
from seq2seq.corpus.shortlist import Shortlist, read_shortlist, write_shortlist
from seq2seq.models import Transformer, build_model
from seq2seq.text.load import load_tokenizer
from seq2seq.text.new_folder import new_folder
from seq2seq.text.tokenizer import Tokenizer

FORMAT_VERSION = 2
"""Raised when a bundle written by this package can no longer be read by an older one.

1: encoder-decoders that translate, SentencePiece. 2: a task, other architectures, tokenizers of other formats.
"""

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"

_KEYS: dict[str, tuple[type, ...]] = {
    "architecture": (str,),
    "task": (str,),
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
        task: Whether it translates, or goes on from a text.
        shortlist: Target pieces that translations are chosen from if `decode.shortlist` says so; None without one.
    """

    model: Transformer
    model_config: ModelConfig
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    languages: tuple[str | None, str | None] = (None, None)
    provenance: dict[str, Any] = field(default_factory=dict)
    task: Task = Task.translation
    shortlist: Shortlist | None = None

    @property
    def joint(self) -> bool:
        """Whether one tokenizer serves both sides."""
        return self.source_tokenizer.sha256 == self.target_tokenizer.sha256


def save_bundle(bundle: Bundle, path: str | Path) -> None:
    """Write the bundle as a folder, whole or not at all; an older bundle at `path` is replaced.

    Raises:
        ValueError: if something that is not a bundle is at `path`.
        OSError: if it cannot be written; nothing is left then.
    """
    with new_folder(path, is_bundle, "a bundle") as scratch:
        write_bundle(bundle, scratch)


def write_bundle(bundle: Bundle, folder: Path) -> None:
    """Write a bundle's files into an empty folder.

    Raises:
        OSError: if they cannot be written.
    """
    try:
        save_model(bundle.model, str(folder / WEIGHTS_FILE))
    except SafetensorError as problem:  # its word for a full disk and the like
        raise OSError(
            f"the weights could not be written in {folder.parent} ({problem}); is the disk full?"
        ) from problem
    files = bundle.source_tokenizer.files("source")
    if not bundle.joint:
        files |= bundle.target_tokenizer.files("target")
    for name, content in files.items():
        (folder / name).write_bytes(content)
    if bundle.shortlist is not None:
        write_shortlist(bundle.shortlist, folder / SHORTLIST_FILE)
    text = json.dumps(_describe(bundle), indent=2, ensure_ascii=False) + "\n"
    (folder / CONFIG_FILE).write_text(text, encoding="utf-8")
    for file in folder.iterdir():
        file.chmod(0o644)  # safetensors makes files that nobody else may read


def load_bundle(path: str | Path, device: str | torch.device = "cpu") -> Bundle:
    """The bundle at `path`, its model in evaluation mode on `device`.

    Raises:
        FileNotFoundError: if `path` is not a bundle, or one of its files is missing.
        ValueError: if its format is newer than this package, its parts do not fit together, or its shortlist is
            damaged or was made with other tokenizers.
    """
    path = Path(path)
    config = read_config(path)
    if not (path / WEIGHTS_FILE).is_file():
        raise FileNotFoundError(
            f"{path / WEIGHTS_FILE} is missing; expected the weights that the bundle was saved with"
        )
    source, target = _tokenizers(path, config)
    model_config = from_dict(ModelConfig, config["model"], where="model.")
    if model_config.architecture.name != config["architecture"]:
        raise ValueError(
            f"{path / CONFIG_FILE} is damaged: its architecture is {config['architecture']}, that of its model "
            f"{model_config.architecture.name}; put the original file back"
        )
    with _NoDraws():
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
        task=Task[config["task"]],
        shortlist=_shortlist(path / SHORTLIST_FILE, source, target),
    )


def load_tokenizers(path: str | Path) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of the bundle at `path`, source and target; one and the same where it serves both.

    Raises:
        FileNotFoundError: if `path` is not a bundle, or a tokenizer's file is missing.
        ValueError: if a tokenizer is not the one that the bundle was saved with.
    """
    return _tokenizers(Path(path), read_config(path))


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
        if Path(path).suffix == ".ckpt" or (not hint and (Path(path) / "checkpoints").is_dir()):
            hint = f"; `seq2seq average {path} -o BUNDLE` makes one"
        raise FileNotFoundError(
            f"{path} is not a bundle: it has no {CONFIG_FILE}; expected the folder `bundle` that `seq2seq train` "
            f"writes{hint}"
        )
    try:
        config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        foreign = _foreign(Path(path), config)
        version = int(config["format_version"]) if foreign is None else 0
    except (ValueError, KeyError, TypeError) as problem:
        raise ValueError(f"{file} is damaged: {problem!r}; expected JSON with a format_version") from problem
    if foreign is not None:
        raise ValueError(foreign)
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{file} has format version {version}, this package reads up to {FORMAT_VERSION}; update seq2seq"
        )
    if version == 1:
        config.setdefault("task", Task.translation.name)
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
    for key, choices in (("architecture", Architecture), ("task", Task)):
        if config[key] not in choices.__members__:
            raise ValueError(
                f"{file} has {key} {config[key]!r}, this package reads {', '.join(choices.__members__)}; update seq2seq"
            )
    return config


def _foreign(path: Path, config: dict[str, Any]) -> str | None:
    """What to do with a folder of another program, which has a config.json too; None if it is not one."""
    if "format_version" in config:
        return None
    if (path / "model.bin").is_file():
        return (
            f"{path} is a CTranslate2 model, not a bundle; use it as its README.md says, and here the bundle that it "
            "was made from"
        )
    if "model_type" in config:
        return f"{path} is a Hugging Face folder, not a bundle; convert it first: seq2seq convert {path} NEW_FOLDER"
    return None


_DRAWS = (torch.Tensor.uniform_, torch.Tensor.normal_, init.uniform_, init.normal_, init.kaiming_uniform_)


class _NoDraws(TorchFunctionMode):
    """Inside, tensors that would be filled with random numbers are left as they are.

    Weights that are read from a file need no initial values: drawing them takes longer than reading, and would change
    the random numbers that come after.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def _tokenizers(path: Path, config: dict[str, Any]) -> tuple[Tokenizer, Tokenizer]:
    source = load_tokenizer(path, "source", config["source_tokenizer"])
    return source, source if config["joint"] else load_tokenizer(path, "target", config["target_tokenizer"])


def _shortlist(file: Path, source: Tokenizer, target: Tokenizer) -> Shortlist | None:
    """The shortlist of a bundle, if it has one."""
    if not file.is_file():
        return None
    shortlist = read_shortlist(file)
    try:
        shortlist.check(source, target)
    except ValueError as problem:
        raise ValueError(f"{file}: {problem}, or remove it") from problem
    return shortlist


def _first(problem: Exception) -> str:
    """The first thing that a loader found; torch names every tensor that does not fit, on a line each."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    shown = " ".join(lines[:2])
    return f"{shown:.300} ... and {len(lines) - 2} more" if len(lines) > 2 else f"{shown:.300}"


def is_bundle(path: Path) -> bool:
    """Whether the folder may be replaced by a bundle. Other people's models have a config.json too."""
    try:
        return "format_version" in json.loads((path / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def _describe(bundle: Bundle) -> dict[str, Any]:
    source_lang, target_lang = bundle.languages
    return {
        "format_version": FORMAT_VERSION,
        "architecture": bundle.model_config.architecture.name,
        "task": bundle.task.name,
        "source_lang": source_lang,
        "target_lang": target_lang,
        "joint": bundle.joint,
        "source_tokenizer": bundle.source_tokenizer.describe(),
        "target_tokenizer": bundle.target_tokenizer.describe(),
        "model": to_dict(bundle.model_config),
        "decode": to_dict(bundle.decode),
        "provenance": bundle.provenance,
    }
