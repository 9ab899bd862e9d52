"""What is said when a run goes on with other options or other text than it was started with."""

import json
import logging
from collections.abc import Mapping
from typing import Any

import yaml

from seq2seq.config import TrainConfig, to_dict
from seq2seq.training.averaging import RUN_FILES, read_checkpoint

log = logging.getLogger(__name__)

_FREE = (
    "resume",
    "name",
    "logger.",
    "callbacks.",
    "init.",
    "data.tokenizer.",
    "data.train_",
    "data.valid_",
    "data.dir",
)
"""What changes nothing, or is judged by what it leads to: text by its contents, tokenizers and weights elsewhere."""
_FREE_OF_TRAINER = (
    "max_",
    "log_every",
    "report",
    "num_samples",
    "keep_best",
    "patience",
    "num_threads",
    "batch_tokens",
)


def tell_changes(config: TrainConfig, fingerprint: Mapping[str, Any]) -> None:
    """Warn, if the run to resume was started with other options or other text: what follows is neither run then.

    Args:
        config: The options now, with the checkpoint as `resume`.
        fingerprint: The text now, by file.
    """
    assert config.resume is not None
    files = read_checkpoint(config.resume).get(RUN_FILES, {})
    if not {"config.yaml", "run.json"} <= files.keys():  # of before checkpoints held them
        return
    then, facts = (
        yaml.safe_load(files["config.yaml"].numpy().tobytes()),
        json.loads(files["run.json"].numpy().tobytes()),
    )
    before, now = _flat(then), _flat(to_dict(config))
    changed = [f"{name}={now[name]} (was {before[name]})" for name in now if before.get(name, now[name]) != now[name]]
    if changed:
        log.warning(
            "the run to resume was started with other options: %s; it goes on with the new ones", ", ".join(changed)
        )
    texts = ({found["sha256"] for found in text.values()} for text in (facts.get("data", {}), fingerprint))
    if len({frozenset(text) for text in texts}) > 1:
        log.warning(
            "the run to resume was started with other text; it goes on with the new one, of which the pieces already "
            "trained on in this epoch are not left out exactly"
        )


def _flat(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Options by dotted name, without those that may change."""
    found: dict[str, Any] = {}
    for key, value in options.items():
        name = prefix + key
        if isinstance(value, dict):
            found |= _flat(value, name + ".")
        elif not name.startswith((*_FREE, *(f"trainer.{free}" for free in _FREE_OF_TRAINER))):
            found[name] = value
    return found
