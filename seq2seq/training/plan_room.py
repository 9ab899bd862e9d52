"""How much memory and disk a run would take."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2seq.config import Precision, TrainConfig
from seq2seq.inspection.cost import Sizes
from seq2seq.inspection.memory import training_memory
from seq2seq.models import Transformer
from seq2seq.training.module import TrainingModule
from seq2seq.training.preparation import Prepared
from seq2seq.training.trial import Trial, Update, num_bytes

_MASTER = ("weights", "gradients", "Adam's moments")
"""Parts of the estimate that are counted here, for the optimiser and precision of the run."""


@dataclass(frozen=True)
class Memory:
    """Bytes on one device."""

    parts: dict[str, int]
    """An estimate for the largest batch."""
    rows: int
    """Of that batch, at its longest."""
    length: int
    """Pieces of each of its rows."""
    measured: int | None
    """The most that the process had with it, torch itself included; None where it cannot be measured."""

    @property
    def together(self) -> int:
        """The estimate."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Disk:
    """Bytes of a run's folder."""

    best: tuple[int, int]
    """How many checkpoints of best validations, and bytes of each."""
    recent: tuple[int, int]
    """The same of those kept for averaging."""
    last: tuple[int, int]
    """The same of those to go on from, with the optimiser's state."""
    bundle: int
    scratch: int
    """A checkpoint stands beside the older one until it is complete."""
    free: int
    """Where the run would be written."""
    folder: str

    @property
    def together(self) -> int:
        """Bytes at most."""
        kept = (self.best, self.recent, self.last)
        return sum(number * size for number, size in kept) + self.bundle + self.scratch


def memory(config: TrainConfig, module: TrainingModule, model: Transformer, largest: Update, trial: Trial) -> Memory:
    """What is in memory when the way back of the largest batch begins, by part.

    Weights, gradients and the optimiser's state are exact; activations are the estimate of `seq2seq inspect cost`, in
    half precision half of it.

    Args:
        config: Every option.
        module: Network under training.
        model: The network.
        largest: The batches of a step of the longest rows.
        trial: Of steps with them.
    """
    trainer, batch = config.trainer, largest[0]
    rows, length = _shape(batch)
    source = length if hasattr(batch, "src") else 0
    sizes = Sizes(config.model, model.source_rows, len(model.output), rows, source, length)
    true = trainer.precision is Precision.bf16_true
    mixed = trainer.precision in (Precision.bf16_mixed, Precision.fp16_mixed)
    weights = num_bytes(module) // (2 if true else 1)
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    parts = {
        "weights": weights,
        "gradients": (2 if true else 4) * trained,
        f"optimiser ({config.optim.optimizer.name})": trial.optimizer_bytes,
    }
    if mixed:
        parts["weights in half precision"] = weights // 2
    if config.optim.ema_decay is not None:
        parts["moving average"] = weights
    for part in training_memory(sizes):
        if part.name in _MASTER:
            continue
        value = part.bytes // (2 if true or mixed else 1)
        if trainer.activation_checkpointing and part.name.endswith("activations"):
            value = _recomputed(config, part.name.split()[0], value, rows * length * (2 if true or mixed else 4))
        parts[part.name] = value
    return Memory(parts, rows, length, trial.peak_bytes)


def _recomputed(config: TrainConfig, stack: str, value: int, positions_bytes: int) -> int:
    """Activations where layers are computed a second time: the inputs of all layers, and the inside of one."""
    layers = config.model.num_encoder_layers if stack == "encoder" else config.model.num_decoder_layers
    return value // max(1, layers) + layers * positions_bytes * config.model.d_model


def _shape(batch: Any) -> tuple[int, int]:
    """Rows and length of a batch."""
    ids = batch.tgt_in if hasattr(batch, "tgt_in") else batch.ids
    return int(ids.shape[0]), int(ids.shape[1])


def disk(config: TrainConfig, run: Prepared, optimizer_bytes: int, folder: Path) -> Disk:
    """What is kept of a run, at most. Every checkpoint has the tokenizers in it, so that it is a model by itself.

    Args:
        config: Every option.
        run: Network and tokenizers.
        optimizer_bytes: Of the optimiser's state.
        folder: Where the run would be written.
    """
    sides = {"source": run.tokenizers.source, "target": run.tokenizers.target}
    if run.tokenizers.target is run.tokenizers.source:
        del sides["target"]
    texts = sum(len(content) for side, text in sides.items() for content in text.files(side).values())
    weights = num_bytes(run.module) + texts
    averaged = num_bytes(run.module) if config.optim.ema_decay is not None else 0
    whole = weights + averaged + optimizer_bytes
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    return Disk(
        best=(config.trainer.keep_best, weights),
        recent=(config.trainer.average_last, weights),
        last=(2, whole),
        bundle=weights,
        scratch=whole,
        free=shutil.disk_usage(place).free,
        folder=str(folder),
    )
