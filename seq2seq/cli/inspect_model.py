"""What the argument MODEL_OR_CONFIG of `seq2seq inspect` can be: a bundle, a run, a name of conf/model, a file."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.cli import UsageError
from seq2seq.cli.train import conf_dir, one_line
from seq2seq.config import Architecture, DataKind, ModelConfig, Task, from_dict, nearest

if TYPE_CHECKING:
    from seq2seq.inspection.cost import Sizes
    from seq2seq.models import Transformer

VOCAB_SIZE = 32_000
"""Pieces of a configuration's vocabulary, unless told otherwise."""

LARGE = 100_000_000
"""A configuration with more parameters than this is built without memory for them."""

HELP = (
    "A bundle, the folder of a run, a name of conf/model such as transformer_base, or a YAML or JSON file with the "
    "options of a model."
)
VOCAB_HELP = f"Pieces of the vocabulary of a configuration (default {VOCAB_SIZE:,}); a bundle or a run has its own."


@dataclass(frozen=True)
class Subject:
    """A model to look at."""

    name: str
    """For headings, as typed."""
    config: ModelConfig
    source_vocab: int
    """Pieces on the source side."""
    target_vocab: int
    """Pieces on the target side."""
    bundle: Path | None = None
    """Where its weights are, if it has any."""
    reads_text: bool = False
    """Whether it was trained on plain text and not on pairs."""

    @property
    def decoder_only(self) -> bool:
        """Whether there is no encoder."""
        return self.config.architecture is Architecture.decoder_only


def find_model(given: str, vocab_size: int | None) -> Subject:
    """What was meant by the argument.

    Raises:
        FileNotFoundError: if it is nothing of what it can be, with the nearest name.
        ValueError: if its options are wrong, or a bundle is damaged.
        UsageError: if a vocabulary size was given for something that has a vocabulary.
    """
    path, names = Path(given), sorted(file.stem for file in (conf_dir() / "model").glob("*.yaml"))
    place = path.parent if path.name in ("config.json", "config.yaml") and path.is_file() else path
    found = _of_folder(given, place) if place.is_dir() and (place != path or given not in names) else None
    if found is not None:
        if vocab_size is not None:
            raise UsageError(f"--vocab-size is for configurations; {given} has a vocabulary of its own")
        return found
    pieces = VOCAB_SIZE if vocab_size is None else vocab_size
    if given in names:
        return Subject(given, _config(_composed(conf_dir() / "model", given), given), pieces, pieces)
    if path.is_file():
        return Subject(given, _config(_of_file(path), given), pieces, pieces)
    if place.is_dir():
        raise FileNotFoundError(
            f"{given} is neither a bundle (it has no config.json) nor the folder of a run (it has no config.yaml); "
            "expected the folder `bundle` that `seq2seq train` writes, or outputs/<name>/<date>_<time>"
        )
    raise FileNotFoundError(
        f"there is no {given!r}: expected a bundle, the folder of a run, a YAML or JSON file of model options, or a "
        f"name of conf/model{nearest(given, names)}"
    )


def check_source(subject: Subject, source: int) -> None:
    """Refuse plain text for a model with an encoder.

    Raises:
        UsageError: then.
    """
    if source == 0 and not subject.decoder_only:
        raise UsageError("--src 0 is for decoder-only models, which read plain text too; this one has an encoder")


def build(subject: Subject) -> "Transformer":
    """The network: with its weights, if it has any; a very large configuration on the meta device, without memory."""
    import torch

    from seq2seq.bundle import load_bundle
    from seq2seq.inspection.cost import parameter_parts
    from seq2seq.models import build_model

    if subject.bundle is not None:
        return load_bundle(subject.bundle).model
    parameters = sum(part.total for part in parameter_parts(sizes(subject, batch=1, source=1, target=1)))
    with torch.random.fork_rng(devices=[]), torch.device("meta" if parameters > LARGE else "cpu"):
        return build_model(subject.config, subject.source_vocab, subject.target_vocab)


def sizes(subject: Subject, *, batch: int, source: int, target: int) -> "Sizes":
    """The model's options and what it is given, for the formulas."""
    from seq2seq.inspection.cost import Sizes
    from seq2seq.models.build import embedding_rows

    multiple = subject.config.vocab_multiple
    source_rows, target_rows = (
        embedding_rows(pieces, multiple) for pieces in (subject.source_vocab, subject.target_vocab)
    )
    return Sizes(subject.config, source_rows, target_rows, batch, source, target)


def _of_folder(given: str, folder: Path) -> Subject | None:
    """The bundle or the run in a folder; None if it is neither."""
    if (folder / "config.json").is_file():
        return _of_bundle(given, folder)
    if (folder / "bundle" / "config.json").is_file():
        return _of_bundle(given, folder / "bundle")
    if not (folder / "config.yaml").is_file():
        return None
    from seq2seq.training.run_folder import read_run

    config, tokenizers, _ = read_run(folder)
    source, target = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    return Subject(given, config.model, source, target, reads_text=config.data.kind is DataKind.text)


def _of_bundle(given: str, folder: Path) -> Subject:
    from seq2seq.bundle import read_config

    facts = read_config(folder)
    config = from_dict(ModelConfig, facts["model"], where="model.")
    source, target = (facts[f"{side}_tokenizer"]["vocab_size"] for side in ("source", "target"))
    return Subject(given, config, source, target, folder, facts["task"] == Task.language_model.name)


def _of_file(file: Path) -> dict[str, Any]:
    """The model options in a YAML or JSON file; of a file of all options, those of the model."""
    import yaml

    if file.suffix not in (".yaml", ".yml", ".json"):
        raise ValueError(f"{file} is not a configuration; expected a file that ends in .yaml, .yml or .json")
    try:
        text = file.read_text(encoding="utf-8")
        values = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{file} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{file} holds {type(values).__name__}, expected model options by name, such as d_model: 512")
    if "defaults" in values:
        values = _composed(file.parent, file.stem)
    inner = values.get("model")
    return inner if isinstance(inner, dict) else values


def _composed(folder: Path, name: str) -> dict[str, Any]:
    """The options in ``folder/name.yaml`` with those of the files that its `defaults` name, there or in conf/model.

    Raises:
        ValueError: if a file that is named is missing, or they do not fit together.
    """
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    ours = "file://" + str(conf_dir() / "model").replace("'", "\\'")
    try:
        with initialize_config_dir(version_base="1.3", config_dir=str(folder.resolve())):
            composed = compose(name, overrides=[f"hydra.searchpath=['{ours}']"])
        values = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(f"{folder / name}.yaml: {one_line(error)}") from error
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def _config(values: dict[str, Any], given: str) -> ModelConfig:
    try:
        return from_dict(ModelConfig, values)
    except ValueError as error:
        raise ValueError(f"{given}: {error}") from error
