"""What every step of a run was: its batches, its learning rate, its loss, and what it left behind, as digests."""

import dataclasses
import hashlib
import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from seq2seq.shapes import Tensor
from seq2seq.training.distribution import rank
from seq2seq.training.module import TrainingModule
from seq2seq.training.random_state import random_state

FIELDS = {
    "batches": "batch ids",
    "ids": "subword ids",
    "lr": "learning rate",
    "python": "Python's random numbers",
    "numpy": "NumPy's random numbers",
    "torch": "torch's random numbers",
    "cuda": "CUDA's random numbers",
    "loss": "loss",
    "parameters": "parameters",
}
"""What is noted of a step: a cause stands before what it changes."""


class StepRecord(Callback):
    """Adds a line of JSON for every step to a file, one file for each rank, so that two runs can be compared.

    Args:
        file: The file of rank 0 without its ending: rank 1 writes FILE.1.jsonl.
        stop_at: The step after which this process is sent SIGTERM, as a cluster does; None is never.
    """

    def __init__(self, file: str, stop_at: int | None = None) -> None:
        self.file, self.stop_at = file, stop_at

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: tuple[Any, ...], batch_idx: int
    ) -> None:
        """Note the step that was just taken."""
        assert isinstance(pl_module, TrainingModule)
        sums = pl_module.train_sums.numbers()
        state = random_state()
        row: dict[str, Any] = {
            "step": trainer.global_step,
            "epoch": trainer.current_epoch,
            "step_of_epoch": batch_idx + 1,
            "batches": digest([list(getattr(part, "indices", ())) for part in batch]),
            "ids": digest([list(_tensors(part)) for part in batch]),
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
            **{name: digest(state[name]) for name in ("python", "numpy", "torch", "cuda") if name in state},
            # since metrics were last logged, nats a piece; null just after they were
            "loss": sums["loss"] / sums["pieces"] if sums["pieces"] else None,
            "parameters": digest([parameter.detach() for parameter in pl_module.model.parameters()]),
        }
        with Path(f"{self.file}.{rank()}.jsonl").open("a", encoding="utf-8", newline="\n") as stream:
            stream.write(json.dumps(row) + "\n")
        if self.stop_at == trainer.global_step:
            os.kill(os.getpid(), signal.SIGTERM)


def digest(value: Any) -> str:
    """The first 16 letters of the SHA-256 of tensors, arrays and plain builtins in lists."""
    hashed = hashlib.sha256()
    _add(hashed, value)
    return hashed.hexdigest()[:16]


def _add(hashed: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        value = value.cpu()
        hashed.update(f"{value.dtype}{list(value.shape)}".encode())
        hashed.update(value.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    elif isinstance(value, np.ndarray):
        hashed.update(f"{value.dtype}{list(value.shape)}".encode() + value.tobytes())
    elif isinstance(value, list | tuple):
        hashed.update(f"[{len(value)}".encode())
        for part in value:
            _add(hashed, part)
    else:
        hashed.update(repr(value).encode() + b";")


def _tensors(batch: Any) -> Iterable[Tensor]:
    """The tensors of a batch, in the order of its fields."""
    values = (getattr(batch, field.name) for field in dataclasses.fields(batch))
    return (value for value in values if isinstance(value, Tensor))


def read_record(folder: Path, name: str) -> list[dict[int, dict[str, Any]]]:
    """The steps of each rank of a run, by their number; a step that was taken twice counts as it was the last time."""
    files = sorted(folder.glob(f"{name}.*.jsonl"), key=lambda file: int(file.suffixes[-2][1:]))
    lines = [file.read_text(encoding="utf-8").splitlines() for file in files]
    return [{row["step"]: row for row in map(json.loads, of_rank)} for of_rank in lines]
