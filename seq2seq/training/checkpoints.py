"""Which checkpoints a run keeps."""

import logging
import math
from pathlib import Path

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint

from seq2seq.config import TrainerConfig, nearest
from seq2seq.shapes import Tensor
from seq2seq.training.averaging import checkpoint_weights, read_checkpoint

log = logging.getLogger(__name__)


def best_checkpoints(config: TrainerConfig, folder: Path) -> ModelCheckpoint:
    """Keeps the weights of the best validations by `config.monitor`."""
    metric = config.monitor.rpartition("/")[2]
    return ModelCheckpoint(
        dirpath=folder,
        filename=f"best_step_{{step:06d}}_{metric}_{{{config.monitor}:.4f}}",
        monitor=config.monitor,
        mode=config.monitor_direction.name,
        save_top_k=config.keep_best,
        save_weights_only=True,
        auto_insert_metric_name=False,  # it would put "=" into names, which Hydra's overrides cannot take
    )


def recent_checkpoints(config: TrainerConfig, folder: Path) -> ModelCheckpoint:
    """Keeps the weights of the latest validations, for averaging."""
    return ModelCheckpoint(
        dirpath=folder,
        filename="recent_step_{step:06d}",
        monitor="step",
        mode="max",
        save_top_k=config.average_last,
        save_weights_only=True,
        auto_insert_metric_name=False,
    )


def last_checkpoint(folder: Path) -> ModelCheckpoint:
    """Keeps everything that a run needs to go on, from the latest validation, interrupt or error."""
    return ModelCheckpoint(
        dirpath=folder,
        filename="last",
        save_top_k=1,
        save_on_exception=True,
        enable_version_counter=False,
        auto_insert_metric_name=False,
    )


def check_complete(path: str | Path) -> None:
    """Refuse what a run could not go on from, before any work.

    Args:
        path: What the user gave as `resume`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is no checkpoint, or one of weights alone.
    """
    wanted = "expected a run's checkpoints/last.ckpt"
    if not Path(path).is_file():
        raise FileNotFoundError(f"resume={path} does not exist; {wanted}")
    if not read_checkpoint(path).get("optimizer_states"):
        raise ValueError(f"resume={path} holds weights alone, without the optimiser's state; {wanted}")


def check_same_model(path: str | Path, weights: dict[str, Tensor]) -> None:
    """Refuse to go on with another model, before anything of the run is written over.

    Args:
        path: The checkpoint.
        weights: The network as the options describe it, by the names of its `state_dict`.

    Raises:
        ValueError: naming the first matrix that differs.
    """
    found = checkpoint_weights(path)
    for name in [*weights, *found]:
        ours, theirs = (list(side[name].shape) if name in side else "missing" for side in (weights, found))
        if ours != theirs:
            raise ValueError(
                f"resume={path} is not of the model that the options and the tokenizer make: {name} is {theirs}, "
                f"expected {ours}; give the options that the run was started with"
            )


class Patience(EarlyStopping):
    """Lightning's early stopping, which looks away until the warm-up is over: before that, nothing is learned yet.

    Args:
        warmup_steps: Optimiser steps.
        monitor: Name of the metric.
        mode: "min" or "max".
        patience: Validations without improvement.
    """

    def __init__(self, warmup_steps: int, monitor: str, mode: str, patience: int) -> None:
        # A NaN counts as no improvement, and MonitorWatch says so.
        super().__init__(monitor=monitor, mode=mode, patience=patience, check_finite=False)
        self.warmup_steps = warmup_steps

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count a validation, if it comes after the warm-up."""
        if trainer.global_step >= self.warmup_steps:
            super().on_validation_end(trainer, pl_module)


def early_stopping(config: TrainerConfig, warmup_steps: int) -> list[Callback]:
    """Stops after `patience` validations without improvement; none when there is no patience set."""
    if config.patience is None:
        return []
    return [
        Patience(
            warmup_steps,
            monitor=config.monitor,
            mode=config.monitor_direction.name,
            patience=config.patience,
        )
    ]


VALIDATION_METRICS = (
    "valid/bleu",
    "valid/chrf",
    "valid/loss",
    "valid/nll",
    "valid/perplexity",
    "valid/teacher_forced_accuracy",
)
"""What every run logs at each validation; further callbacks may log more."""


def check_monitor(monitor: str) -> None:
    """Refuse to watch a metric that no run logs.

    Raises:
        ValueError: naming those that there are.
    """
    if monitor not in VALIDATION_METRICS:
        raise ValueError(
            f"trainer.monitor={monitor} is not a metric of validation{nearest(monitor, VALIDATION_METRICS)}"
        )


class MonitorWatch(Callback):
    """Warns when the monitored metric is NaN: such a checkpoint is never the best one.

    Args:
        monitor: Name of the metric.
    """

    def __init__(self, monitor: str) -> None:
        self.monitor = monitor

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the metric.

        Raises:
            ValueError: if there is no such metric.
        """
        metrics = trainer.callback_metrics
        if self.monitor not in metrics:
            known = ", ".join(sorted(name for name in metrics if name.startswith("valid/")))
            raise ValueError(f"trainer.monitor={self.monitor} is not a logged metric; expected one of {known}")
        if math.isnan(float(metrics[self.monitor])):
            log.warning("%s is NaN at step %d; it does not count as an improvement", self.monitor, trainer.global_step)
