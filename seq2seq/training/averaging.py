"""The mean of several checkpoints' weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from seq2seq.shapes import Tensor

RUN_FILES = "run_files"
"""Where a checkpoint holds the options and tokenizers of its run."""

_PREFIX = "model."
_USUAL = 5


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """All that a training checkpoint holds.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not a checkpoint of this package.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint at {path}; expected a file of a run's checkpoints/ folder")
    try:
        # weights_only: a checkpoint holds plain builtins and tensors, and nothing of it is ever executed.
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        content["state_dict"].items()
    except Exception as problem:  # torch raises many kinds for a damaged file
        raise ValueError(
            f"{path} is not a readable training checkpoint ({type(problem).__name__}: "
            f"{str(problem).partition('. ')[0]:.200}); expected a file of a run's checkpoints/ folder"
        ) from problem
    return content


def checkpoint_weights(path: str | Path) -> dict[str, Tensor]:
    """The network's weights in a training checkpoint, by the names that they have in the network.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not a checkpoint of this package.
    """
    return network_weights(read_checkpoint(path))


def network_weights(checkpoint: dict[str, Any]) -> dict[str, Tensor]:
    """The network's weights in what `read_checkpoint` gave."""
    state = checkpoint["state_dict"]
    return {name.removeprefix(_PREFIX): value for name, value in state.items() if name.startswith(_PREFIX)}


def average_checkpoints(paths: Sequence[str | Path]) -> dict[str, Tensor]:
    """Element-wise mean of the weights of several checkpoints of one model, computed in float64.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if there are no files, or they are not of the same model.

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 6.1: the last 5 checkpoints, or 20 for the big model.
    """
    if not paths:
        raise ValueError("no checkpoints to average; give at least one")
    first = checkpoint_weights(paths[0])
    sums = {name: value.double() for name, value in first.items()}
    for path in paths[1:]:
        weights = checkpoint_weights(path)
        _check_same(first, weights, paths[0], path)
        for name, value in weights.items():
            sums[name] += value
    return {name: (total / len(paths)).to(first[name].dtype) for name, total in sums.items()}


def _check_same(first: dict[str, Tensor], other: dict[str, Tensor], first_path: str | Path, path: str | Path) -> None:
    if first.keys() != other.keys():
        names = sorted(first.keys() ^ other.keys())
        raise ValueError(f"{path} is not of the same model as {first_path}: {names[0]} is in only one of them")
    for name, value in first.items():
        if value.shape != other[name].shape:
            raise ValueError(
                f"{path} is not of the same model as {first_path}: {name} is {list(other[name].shape)} and "
                f"{list(value.shape)}"
            )


def latest_checkpoints(run_dir: str | Path, last: int | None = None) -> list[Path]:
    """The `last` newest of the checkpoints that a run kept for averaging, oldest first; by default up to 5.

    Raises:
        FileNotFoundError: if the folder has none.
        ValueError: if there are fewer than `last`.
    """
    found = sorted((Path(run_dir) / "checkpoints").glob("recent_step_*.ckpt"))
    if not found:
        raise FileNotFoundError(
            f"{run_dir} has no checkpoints/recent_step_*.ckpt; train with trainer.average_last > 0, or name "
            "checkpoint files"
        )
    if last is None:
        return found[-_USUAL:]
    if len(found) < last:
        raise ValueError(
            f"{run_dir} has {len(found)} recent checkpoints, {last} were asked for; choose --last {len(found)}"
        )
    return found[-last:]
