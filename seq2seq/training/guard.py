"""Skips optimiser steps whose gradients are not finite, and ends a run that has nothing but such steps."""

import logging
import math
from typing import Any

log = logging.getLogger(__name__)


class StepGuard:
    """Counts steps that would spoil the weights.

    Args:
        most: Skipped steps in a row before the run ends.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.skipped = 0
        self.in_a_row = 0

    def accepts(self, norm: float, step: int) -> bool:
        """Whether the step may be taken.

        Args:
            norm: 2-norm of all gradients together.
            step: Number of the step.

        Raises:
            ValueError: after `most` skipped steps in a row.
        """
        if math.isfinite(norm):
            self.in_a_row = 0
            return True
        self.skipped += 1
        self.in_a_row += 1
        log.warning("step %d is skipped: its gradients are not finite (%d so far)", step, self.skipped)
        if self.in_a_row >= self.most:
            raise ValueError(
                f"the gradients of {self.in_a_row} steps in a row are not finite (optim.max_bad_steps={self.most}); go "
                "on from the last good checkpoint with a lower learning rate (optim.lr_factor), a longer "
                "optim.warmup_steps, or trainer.precision=fp32"
            )
        return False

    def state_dict(self) -> dict[str, Any]:
        """The counts, for the checkpoint."""
        return {"skipped": self.skipped, "in_a_row": self.in_a_row}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on counting from a checkpoint."""
        self.skipped, self.in_a_row = state["skipped"], state["in_a_row"]
