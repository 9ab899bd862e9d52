"""Which checkpoints a run keeps."""

import logging
import math
from pathlib import Path

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint

from seq2seq.config import TrainerConfig

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


def early_stopping(config: TrainerConfig) -> list[Callback]:
    """Stops after `patience` validations without improvement; none when there is no patience set."""
    if config.patience is None:
        return []
    return [
        EarlyStopping(
            monitor=config.monitor,
            mode=config.monitor_direction.name,
            patience=config.patience,
            check_finite=False,  # a NaN counts as no improvement; MonitorWatch says so
        )
    ]


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
