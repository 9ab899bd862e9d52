"""A run on disk: what is written at its start, and how its checkpoints become a bundle.

config.yaml      every option, composed
run.json         package versions, data fingerprint, seed
tokenizer/       described.json, and the files of one tokenizer or of two, as in a bundle
checkpoints/     last.ckpt, best_step_*.ckpt, recent_step_*.ckpt
metrics.csv, tensorboard/, samples.jsonl, train.log
bundle/          the model to use, written at the end
report.html      curves, samples, options and versions on one page
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from seq2seq.bundle import Bundle
from seq2seq.config import DataKind, Task, TrainConfig, to_dict
from seq2seq.models import build_model
from seq2seq.shapes import Tensor
from seq2seq.text.load import load_tokenizer
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.training.averaging import RUN_FILES, average_checkpoints, read_checkpoint
from seq2seq.training.data_module import Tokenizers
from seq2seq.training.options_file import read_facts, read_options
from seq2seq.training.whole_file import whole_file, write_whole

DESCRIPTION_FILE = "described.json"
"""In tokenizer/: what the tokenizers say of themselves."""


def task_of(config: TrainConfig) -> Task:
    """What the model of a run is for."""
    return Task.language_model if config.data.kind is DataKind.text else Task.translation


def check_unused(run_dir: Path) -> None:
    """Refuse a folder with another run in it: the checkpoints of both would be mixed up.

    Raises:
        ValueError: if a run has written there.
    """
    folder = run_dir / "checkpoints"
    if not any(folder.glob("*.ckpt")) and not (run_dir / "bundle").exists():
        return
    there = [file for name in ("last.ckpt", "before_last.ckpt") if (file := folder / name).is_file()]
    if there:
        remedy = f"choose another folder, remove it, or go on with it: resume={there[0]}"
    else:
        remedy = (
            "choose another folder or remove it; it has no checkpoints/last.ckpt to go on from, because it was stopped "
            "before that was written for the first time, or because that was removed"
        )
    raise ValueError(f"{run_dir} already holds a run; {remedy}")


def check_same_tokenizers(run_dir: Path, tokenizers: Tokenizers) -> None:
    """Refuse to go on with a run, where one is in `run_dir`, with other pieces than it has learnt.

    Raises:
        ValueError: naming the place of the other tokenizer.
    """
    folder = run_dir / "tokenizer"
    for side, described in _described(folder).items():
        tokenizer = tokenizers.source if side == "source" else tokenizers.target
        if described["sha256"] != tokenizer.sha256:
            file = folder / f"{side}.spm"
            told = f", or data.tokenizer.{side}_model={file}" if file.is_file() else ""
            raise ValueError(
                f"the run to resume has another tokenizer, {file if told else folder}: give it the text and "
                f"data.tokenizer options that it was started with{told}"
            )


def write_run(run_dir: Path, config: TrainConfig, tokenizers: Tokenizers, facts: dict[str, Any]) -> None:
    """Write what a checkpoint needs beside it to become a model again."""
    run_dir.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
    write_whole(run_dir / "config.yaml", text)
    write_whole(run_dir / "run.json", json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    _write_tokenizers(run_dir / "tokenizer", tokenizers)


def read_run(run_dir: str | Path) -> tuple[TrainConfig, Tokenizers, dict[str, Any]]:
    """The options, tokenizers and facts that `write_run` wrote.

    Raises:
        FileNotFoundError: if the folder is not a run's.
        ValueError: if its files are damaged.
    """
    run_dir = Path(run_dir)
    config, facts = read_options(run_dir), read_facts(run_dir)
    return config, _read_tokenizers(run_dir / "tokenizer"), facts


def run_files(run_dir: str | Path) -> dict[str, Tensor]:
    """The bytes of what `write_run` wrote, by the names of the files: a checkpoint holds them too, and so can do
    without its folder."""
    run_dir = Path(run_dir)
    files = [run_dir / "config.yaml", run_dir / "run.json", *sorted((run_dir / "tokenizer").glob("*"))]
    return {
        file.relative_to(run_dir).as_posix(): torch.from_numpy(np.fromfile(file, np.uint8))
        for file in files
        if file.is_file()
    }


def bundle_from_file(checkpoint: str | Path) -> Bundle:
    """The model of a checkpoint from its file alone, wherever that has been moved or copied to.

    No options are needed, nothing but plain builtins and tensors is unpickled, and `save_bundle` makes a bundle of it::

        Translator(bundle_from_file("best_step_001000_bleu_34.2000.ckpt")).translate(["Guten Morgen!"])

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged, or does not hold its run's options and tokenizers.
    """
    files = read_checkpoint(checkpoint).get(RUN_FILES)
    if not files:
        raise ValueError(
            f"{checkpoint} holds weights without the options and tokenizers of its run; name it in its run's "
            "checkpoints/ folder, to seq2seq average"
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for file, content in files.items():
            place = (folder / file).resolve()
            if not place.is_relative_to(folder):
                raise ValueError(f"{checkpoint} is not a checkpoint of this package: it has a file called {file}")
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(content.numpy().tobytes())
        return bundle_from_checkpoints(folder, [checkpoint])


def _write_tokenizers(folder: Path, tokenizers: Tokenizers) -> None:
    folder.mkdir(exist_ok=True)
    sides = {"source": tokenizers.source}
    if tokenizers.target is not tokenizers.source:
        sides["target"] = tokenizers.target
    for side, tokenizer in sides.items():
        for name, content in tokenizer.files(side).items():
            with whole_file(folder / name) as stream:
                stream.write(content)
    described = {side: tokenizer.describe() for side, tokenizer in sides.items()}
    write_whole(folder / DESCRIPTION_FILE, json.dumps(described, indent=2) + "\n")


def _read_tokenizers(folder: Path) -> Tokenizers:
    described = _described(folder)
    source = load_tokenizer(folder, "source", described.get("source", {}))
    return Tokenizers(
        source, load_tokenizer(folder, "target", described["target"]) if "target" in described else source
    )


def _described(folder: Path) -> dict[str, dict[str, Any]]:
    """What the tokenizers of a run say of themselves, by side; runs of before that have SentencePiece models only."""
    file = folder / DESCRIPTION_FILE
    if file.is_file():
        try:
            described: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as problem:
            raise ValueError(f"{file} is damaged: {problem}") from problem
        return described
    files = {side: folder / f"{side}.spm" for side in ("source", "target")}
    return {side: SentencePieceTokenizer.load(file).describe() for side, file in files.items() if file.is_file()}


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
        task=task_of(config),
        provenance={**facts, "checkpoints": [Path(path).name for path in checkpoints], **(results or {})},
    )
