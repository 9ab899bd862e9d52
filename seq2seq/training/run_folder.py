"""A run on disk: what is written at its start, and how its checkpoints become a bundle.

config.yaml      every option, composed
run.json         package versions, data fingerprint, seed
tokenizer/       source.spm, and target.spm with separate vocabularies
checkpoints/     last.ckpt, best_step_*.ckpt, recent_step_*.ckpt
metrics.csv, tensorboard/, samples.jsonl, train.log
bundle/          the model to use, written at the end
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from seq2seq.bundle import SOURCE_FILE, TARGET_FILE, Bundle
from seq2seq.config import TrainConfig, from_dict, to_dict
from seq2seq.models import build_model
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.training.averaging import average_checkpoints
from seq2seq.training.data_module import Tokenizers


def check_unused(run_dir: Path) -> None:
    """Refuse a folder with another run in it: the checkpoints of both would be mixed up.

    Raises:
        ValueError: if a run has written there.
    """
    if any((run_dir / "checkpoints").glob("*.ckpt")) or (run_dir / "bundle").exists():
        raise ValueError(
            f"{run_dir} already holds a run; choose another folder, remove it, or go on with it: "
            f"resume={run_dir / 'checkpoints' / 'last.ckpt'}"
        )


def check_same_tokenizers(run_dir: Path, tokenizers: Tokenizers) -> None:
    """Refuse to go on with a run, where one is in `run_dir`, with other pieces than it has learnt.

    Raises:
        ValueError: naming the file that differs.
    """
    for name, tokenizer in ((SOURCE_FILE, tokenizers.source), (TARGET_FILE, tokenizers.target)):
        file = run_dir / "tokenizer" / name
        if file.is_file() and file.read_bytes() != tokenizer.model:
            raise ValueError(
                f"the run to resume has another tokenizer, {file}: give it the text and data.tokenizer options that it "
                f"was started with, or data.tokenizer.source_model={file}"
            )


def write_run(run_dir: Path, config: TrainConfig, tokenizers: Tokenizers, facts: dict[str, Any]) -> None:
    """Write what a checkpoint needs beside it to become a model again."""
    (run_dir / "tokenizer").mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
    (run_dir / "config.yaml").write_text(text, encoding="utf-8")
    (run_dir / "run.json").write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (run_dir / "tokenizer" / SOURCE_FILE).write_bytes(tokenizers.source.model)
    (run_dir / "tokenizer" / TARGET_FILE).unlink(missing_ok=True)  # of an attempt that came to nothing
    if tokenizers.target is not tokenizers.source:
        (run_dir / "tokenizer" / TARGET_FILE).write_bytes(tokenizers.target.model)


def read_run(run_dir: str | Path) -> tuple[TrainConfig, Tokenizers, dict[str, Any]]:
    """The options, tokenizers and facts that `write_run` wrote.

    Raises:
        FileNotFoundError: if the folder is not a run's.
    """
    run_dir = Path(run_dir)
    file = run_dir / "config.yaml"
    if not file.is_file():
        raise FileNotFoundError(
            f"{run_dir} is not the folder of a run: it has no config.yaml; expected outputs/<name>/<date>_<time>"
        )
    config = from_dict(TrainConfig, yaml.safe_load(file.read_text(encoding="utf-8")))
    source = Tokenizer.load(run_dir / "tokenizer" / SOURCE_FILE)
    target_file = run_dir / "tokenizer" / TARGET_FILE
    target = Tokenizer.load(target_file) if target_file.exists() else source
    facts = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
    return config, Tokenizers(source, target), facts


def bundle_from_checkpoints(
    run_dir: str | Path, checkpoints: Sequence[str | Path], results: dict[str, Any] | None = None
) -> Bundle:
    """The model of a run with the weights of a checkpoint, or the mean of several.

    Args:
        run_dir: The run's folder.
        checkpoints: Files of its checkpoints/ folder.
        results: Further facts for the bundle's provenance.

    Raises:
        FileNotFoundError: if the run or a checkpoint is missing.
        ValueError: if a checkpoint is damaged or of another model.
    """
    config, tokenizers, facts = read_run(run_dir)
    model = build_model(config.model, tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    weights = average_checkpoints(checkpoints)
    try:
        model.load_state_dict(weights)
    except RuntimeError as problem:
        raise ValueError(
            f"{checkpoints[0]} is not of the model that {run_dir}'s config.yaml and tokenizer describe "
            f"({' '.join(str(problem).split()[:25])} ...); name a checkpoint of that run"
        ) from problem
    return Bundle(
        model=model.eval(),
        model_config=config.model,
        source_tokenizer=tokenizers.source,
        target_tokenizer=tokenizers.target,
        decode=config.decode,
        languages=(config.data.source_lang, config.data.target_lang),
        provenance={**facts, "checkpoints": [Path(path).name for path in checkpoints], **(results or {})},
    )
