"""Clips gradients, skips optimiser steps that would spoil the weights, and ends a run that has nothing but those."""

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

log = logging.getLogger(__name__)


class BadStepsError(ValueError):
    """Ends a run that cannot go on from the weights that it has. What it would save now is what is broken."""


class StepGuard:
    """Counts steps that would spoil the weights.

    All ranks see the same gradients, so they decide alike without asking one another.

    Args:
        most: Skipped steps in a row before the run ends.
        largest: Norm of the gradients above which a step is skipped, too; None for those alone that are not finite.
    """

    def __init__(self, most: int, largest: float | None = None) -> None:
        self.most, self.largest = most, largest
        self.skipped = 0
        self.in_a_row = 0
        self.checkpoint: Path | None = None
        """Where the run keeps the checkpoint to go on from."""

    @property
    def in_trouble(self) -> bool:
        """Whether several steps in a row were skipped. A single one is usual with fp16, whose scale feels its way."""
        return self.in_a_row > 1

    def accepts(self, norm: float, step: int) -> bool:
        """Whether the step may be taken.

        Args:
            norm: 2-norm of all gradients together.
            step: Number of the step.

        Raises:
            BadStepsError: after `most` skipped steps in a row.
        """
        if math.isfinite(norm) and (self.largest is None or norm <= self.largest):
            self.in_a_row = 0
            return True
        self.skipped += 1
        self.in_a_row += 1
        log.warning(
            "step %d is skipped: the norm of its gradients is %s (%d skipped so far, %d in a row)",
            step,
            norm,
            self.skipped,
            self.in_a_row,
        )
        if self.in_a_row >= self.most:
            above = f" or above optim.skip_norm={self.largest}" if self.largest is not None else ""
            raise BadStepsError(
                f"the gradients of {self.in_a_row} steps in a row are not finite{above} (optim.max_bad_steps="
                f"{self.most}), step {step} cannot be taken; {self._remedy()}"
            )
        return False

    def broken(self, step: int) -> BadStepsError:
        """What ends a run whose validation shows that its weights are of no use any more.

        Args:
            step: The last step taken.
        """
        after = f"; the gradients of {self.in_a_row} after it were not finite" if self.in_a_row else ""
        return BadStepsError(
            f"the validation loss is not a number: the steps up to {step} have made weights that are not finite, or so "
            f"large that nothing can be computed with them{after}; the learning rate is too high; {self._remedy()}"
        )

    def _remedy(self) -> str:
        begin = "no checkpoint was written before; begin again"
        if self.checkpoint is not None and self.checkpoint.exists():
            begin = f"go on from the last good checkpoint, resume={self.checkpoint},"
        return (
            f"{begin} with a lower learning rate (optim.lr or optim.lr_factor), a longer optim.warmup_steps, a smaller "
            "optim.clip_norm, or trainer.precision=fp32"
        )

    def state_dict(self) -> dict[str, Any]:
        """The counts, for the checkpoint."""
        return {"skipped": self.skipped, "in_a_row": self.in_a_row}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on counting from a checkpoint."""
        self.skipped, self.in_a_row = state["skipped"], state["in_a_row"]


def clip_gradients(parameters: Sequence[nn.Parameter], clip_norm: float | None, scaler: GradScaler | None) -> float:
    """Scale gradients down to a joint norm.

    Args:
        parameters: What has the gradients.
        clip_norm: The largest norm allowed; None leaves all as they are.
        scaler: With fp16, what has multiplied the loss, and with it these gradients; they stay multiplied.

    Returns:
        Their 2-norm before, without the scaler's factor; not finite if one of them is not.
    """
    scale = scaler.get_scale() if scaler is not None else 1.0
    most = clip_norm * scale if clip_norm is not None else math.inf
    norm = nn.utils.clip_grad_norm_(parameters, most)
    # where gradients are divided among ranks, each has a part of the norm
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm) / scale


def lower_scale(scaler: GradScaler, optimizer: Optimizer) -> None:
    """Have the scaler see the gradients of a step that is skipped, and try a smaller factor for the next one."""
    scaler.unscale_(optimizer)
    scaler.update()
