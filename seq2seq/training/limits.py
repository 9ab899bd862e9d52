"""When training ends, apart from the number of epochs."""

import time
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from seq2seq.training.distribution import any_over_ranks, rank


class Limits(Callback):
    """Stops after a number of steps, minutes or epochs, and has the model validated once more before it does.

    Lightning's own limits end training between two validations, so that the last part of it is never judged.

    Args:
        max_steps: Optimiser steps.
        max_minutes: Wall-clock minutes since training began, those before a resume included.
        max_epochs: Passes over the training text.
    """

    def __init__(
        self, max_steps: int | None = None, max_minutes: float | None = None, max_epochs: int | None = None
    ) -> None:
        self.max_steps, self.max_minutes, self.max_epochs = max_steps, max_minutes, max_epochs
        self.seconds_before = 0.0
        self.started: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return self.seconds_before + (time.monotonic() - self.started if self.started is not None else 0.0)

    def share_done(self, steps: int, epochs: float) -> float:
        """How far training is: the largest of its shares of steps, minutes and epochs, 0 to 1."""
        shares = [
            steps / self.max_steps if self.max_steps else 0.0,
            self.seconds / 60 / self.max_minutes if self.max_minutes else 0.0,
            epochs / self.max_epochs if self.max_epochs else 0.0,
        ]
        return min(1.0, max(shares))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock; a run that was resumed at its limit ends here."""
        self.started = time.monotonic()
        if self._reached(trainer):
            trainer.should_stop = True

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Stop when a limit is reached."""
        last_epoch = self.max_epochs is not None and trainer.current_epoch + 1 >= self.max_epochs
        if self._reached(trainer) or (last_epoch and batch_idx + 1 >= trainer.num_training_batches):
            trainer.should_stop = True

    def _reached(self, trainer: Trainer) -> bool:
        steps = self.max_steps is not None and trainer.global_step >= self.max_steps
        return steps or self._minutes_over()

    def _minutes_over(self) -> bool:
        """Whether time is up by the clock of rank 0; all ranks stop at the same step."""
        if self.max_minutes is None:
            return False
        over = self.seconds >= 60 * self.max_minutes
        return any_over_ranks(over and rank() == 0)

    def state_dict(self) -> dict[str, Any]:
        """Seconds so far, for the checkpoint."""
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting from a checkpoint."""
        self.seconds_before = state_dict["seconds"]
