"""The options of a run, told to its loggers as hyper-parameters: plain values, by their dotted names."""

from collections.abc import Iterator
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.loggers import TensorBoardLogger
from torch.utils.tensorboard.summary import hparams

from seq2seq.config import TrainConfig, to_dict
from seq2seq.training.metrics_file import MetricsCsv

Plain = str | int | float | bool


class LoggedOptions(Callback):
    """Tells the loggers the options when training starts; metrics.csv has config.yaml beside it and is not told.

    Args:
        config: Every option; what stands in `logger` and `callbacks` is left out.
        metric: Name of the monitored metric, which TensorBoard shows beside the options.
    """

    def __init__(self, config: TrainConfig, metric: str) -> None:
        self.options = flat_options(config)
        self.metric = metric

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell them, once for all ranks; a run that goes on has told them already."""
        if trainer.global_step:
            return
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                self._tell_tensorboard(logger)
            elif not isinstance(logger, MetricsCsv):
                logger.log_hyperparams(self.options)

    def _tell_tensorboard(self, logger: TensorBoardLogger) -> None:
        """Have TensorBoard's HPARAMS page show the options beside the metric's latest value.

        Lightning's own way logs a first value of the metric too, which no validation has given.
        """
        writer = logger.experiment._get_file_writer()
        if writer is None:  # other ranks than the first have a logger that does nothing
            return
        for summary in hparams(self.options, {self.metric: 0.0}):  # type: ignore[no-untyped-call]
            writer.add_summary(summary)


def flat_options(config: TrainConfig) -> dict[str, Plain]:
    """The options by dotted name; what is absent is `null`, and lists are as one would type them."""
    values = {name: value for name, value in to_dict(config).items() if name not in ("logger", "callbacks")}
    return dict(_flat(values, ""))


def _flat(values: dict[str, Any], prefix: str) -> Iterator[tuple[str, Plain]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            plain = isinstance(value, (str, int, float, bool))
            yield prefix + name, value if plain else "null" if value is None else str(value)
