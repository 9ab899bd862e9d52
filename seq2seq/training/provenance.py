"""Where a model comes from: what is written beside it so that it can be made again."""

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

_PACKAGES = (
    "torch",
    "pytorch-lightning",
    "sentencepiece",
    "sacrebleu",
    "hydra-core",
    "omegaconf",
    "numpy",
    "safetensors",
)


def environment() -> dict[str, str]:
    """Versions of the interpreter, this package and those that a result depends on."""
    from seq2seq import __version__

    return {"python": platform.python_version(), "seq2seq": __version__} | {name: version(name) for name in _PACKAGES}


def provenance(data: dict[str, Any], seed: int) -> dict[str, Any]:
    """Plain facts about a run that has just begun."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": environment(),
        "data": data,
        "seed": seed,
    }
