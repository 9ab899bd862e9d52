"""What a person sees while training goes on: a bar on a terminal, a line now and then in a log file."""

import logging
import sys
import time
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from seq2seq.training.limits import Limits

log = logging.getLogger(__name__)

_QUIET_SECONDS = 30.0
"""Least time between two log lines."""


class TrainingProgress(Callback):
    """Step, loss, target tokens/s, padding share and time left, on stderr.

    Args:
        limits: Knows how far training is when steps or minutes limit it.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.console = Console(stderr=True)
        self.progress: Progress | None = None
        self.streams: list[tuple[logging.StreamHandler[Any], Any]] = []
        self.last_line = time.monotonic()
        self.share_at_start = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the bar, if a person looks at a terminal."""
        self.share_at_start = self._share(trainer)
        if trainer.global_step:
            log.info("going on from step %d, epoch %d", trainer.global_step, trainer.current_epoch)
        if self.console.is_terminal and trainer.is_global_zero:
            self.progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self.console,
                transient=True,
            )
            self.task = self.progress.add_task("training", total=1.0)
            self.progress.start()
            self._log_above_the_bar()

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Move the bar; in a log, say how it goes every half minute."""
        if self.progress is not None:
            self.progress.update(self.task, completed=self._share(trainer), description=self._describe(trainer))
        elif time.monotonic() - self.last_line >= _QUIET_SECONDS and trainer.is_global_zero:
            self.last_line = time.monotonic()
            log.info("%s, %s", self._describe(trainer), self._time_left(trainer))

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say that validation has begun: with beam search it takes a while."""
        if self.progress is not None:
            self.progress.update(self.task, description=f"step {trainer.global_step} validating")

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take the bar away."""
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Take the bar away before the error is told."""
        self._stop()

    def _stop(self) -> None:
        if self.progress is not None:
            self.progress.stop()
            self.progress = None
        for handler, stream in self.streams:
            handler.setStream(stream)
        self.streams = []

    def _log_above_the_bar(self) -> None:
        """Have log lines go through the bar's console, which prints them above it; the bar has replaced sys.stderr."""
        for handler in logging.getLogger().handlers:
            if type(handler) is logging.StreamHandler and handler.stream is self.console.file:
                self.streams.append((handler, handler.stream))
                handler.setStream(sys.stderr)

    def _share(self, trainer: Trainer) -> float:
        num_batches = trainer.num_training_batches
        within = trainer.fit_loop.epoch_loop.batch_progress.current.completed / num_batches if num_batches else 0.0
        return self.limits.share_done(trainer.global_step, trainer.current_epoch + min(1.0, within))

    def _describe(self, trainer: Trainer) -> str:
        text = f"epoch {trainer.current_epoch} step {trainer.global_step}"
        metrics = trainer.callback_metrics
        if "train/loss" in metrics:
            text += (
                f" loss {float(metrics['train/loss']):.3f} "
                f"{float(metrics['train/target_tokens_per_second']):,.0f} target tokens/s "
                f"padding {float(metrics['train/padding_share']):.1%}"
            )
        if "valid/bleu" in metrics:
            text += f" valid BLEU {float(metrics['valid/bleu']):.1f}"
        elif "valid/nll" in metrics:
            text += f" valid nll {float(metrics['valid/nll']):.3f}"
        return text

    def _time_left(self, trainer: Trainer) -> str:
        share = self._share(trainer)
        gained = share - self.share_at_start
        if gained <= 0 or self.limits.started is None:
            return f"{share:.0%} done"
        seconds = (time.monotonic() - self.limits.started) * (1 - share) / gained
        return f"{share:.0%} done, about {seconds / 60:.0f} min left"
