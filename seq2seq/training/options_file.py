"""The options and facts of a run as its folder has them, or what is wrong with those files."""

import json
from pathlib import Path
from typing import Any

import yaml

from seq2seq.config import TrainConfig, from_dict


def read_options(run_dir: str | Path) -> TrainConfig:
    """The options in a run's config.yaml.

    Raises:
        FileNotFoundError: if the folder is not a run's.
        ValueError: if the file is damaged.
    """
    file = Path(run_dir) / "config.yaml"
    if not file.is_file():
        raise FileNotFoundError(
            f"{run_dir} is not the folder of a run: it has no config.yaml; expected outputs/<name>/<date>_<time>"
        )
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise ValueError(f"{file} is damaged: {' '.join(str(problem).split())}") from problem
    if not isinstance(values, dict):
        raise ValueError(f"{file} is damaged: expected the options of a run, got {values!r:.100}")
    try:
        return from_dict(TrainConfig, values)
    except ValueError as problem:
        raise ValueError(f"{file}: {problem}") from problem


def read_facts(run_dir: str | Path) -> dict[str, Any]:
    """What stands in a run's run.json: versions, text, seed.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged.
    """
    file = Path(run_dir) / "run.json"
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise ValueError(f"{file} is damaged: {problem}") from problem
    if not isinstance(facts, dict):
        raise ValueError(f"{file} is damaged: expected the facts of a run, got {facts!r:.100}")
    for name in ("versions", "data"):
        if not isinstance(facts.get(name, {}), dict):
            raise ValueError(f"{file} is damaged: expected names and values as {name}, got {facts[name]!r:.100}")
    for name, found in facts.get("data", {}).items():
        if not isinstance(found, dict) or not isinstance(found.get("lines"), int) or "sha256" not in found:
            raise ValueError(f"{file} is damaged: expected lines and sha256 of {name}, got {found!r:.100}")
    return facts
