"""What is added up between two logged values; everything a mean per token needs."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch

from seq2seq.shapes import Tensor
from seq2seq.training.distribution import sum_over_ranks
from seq2seq.training.loss import BatchLoss


@dataclass
class Sums:
    """Sums over batches.

    Losses are kept as tensors until somebody asks for numbers: to ask a GPU for one makes it wait.
    """

    loss: float = 0.0
    pieces: int | float = 0
    nll: float = 0.0
    correct: int | float = 0
    tokens: int | float = 0
    source_nll: float = 0.0
    padding: int | float = 0
    positions: int | float = 0
    seconds: float = 0.0
    first_pass_loss: float = 0.0
    first_pass_pieces: int | float = 0
    replaced: int | float = 0
    replaceable: int | float = 0
    divergence: float = 0.0
    forced_correct: int | float = 0
    free_correct: int | float = 0
    compared: int | float = 0
    waiting: list[dict[str, Tensor]] = field(default_factory=list)
    """What batches have cost and is not added yet, by the names of the sums."""

    def add(self, losses: BatchLoss) -> None:
        """Add what a batch has cost, as soon as it is needed."""
        here = {"loss": losses.loss, "nll": losses.nll, "correct": losses.correct, **losses.further}
        if losses.source_nll is not None:
            here["source_nll"] = losses.source_nll
        self.waiting.append({name: value.detach() for name, value in here.items()})

    def snapshot(self) -> "Sums":
        """The sums as they are now, which what is added later does not change."""
        return replace(self, waiting=list(self.waiting))

    def numbers(self) -> dict[str, Any]:
        """All sums by their names, as plain numbers."""
        self._settle()
        return {name: getattr(self, name) for name in _names()}

    def over_ranks(self) -> "Sums":
        """The sums of all ranks together. Every rank must call it."""
        added = Sums()
        for name, value in zip(_names(), sum_over_ranks([*self.numbers().values()]), strict=True):
            setattr(added, name, value)
        return added

    def _settle(self) -> None:
        """Add what waits, batch after batch, in double precision."""
        waiting, self.waiting = self.waiting, []
        for name in {name: None for costs in waiting for name in costs}:
            for value in torch.stack([costs[name] for costs in waiting if name in costs]).tolist():
                setattr(self, name, getattr(self, name) + value)


def _names() -> list[str]:
    """The sums, without what waits."""
    return [place.name for place in fields(Sums) if place.name != "waiting"]
