"""Lightning's engine for the devices of a run."""

from typing import Literal

from pytorch_lightning.strategies import DDPStrategy, Strategy

from seq2seq.config import Precision, TrainerConfig

LIGHTNING_PRECISION: dict[Precision, Literal["32-true", "bf16-mixed", "16-mixed", "bf16-true"]] = {
    Precision.fp32: "32-true",
    Precision.bf16_mixed: "bf16-mixed",
    Precision.fp16_mixed: "16-mixed",
    Precision.bf16_true: "bf16-true",
}
"""Lightning's names of the number formats."""


def build_strategy(trainer: TrainerConfig) -> Strategy | str:
    """The engine that the options ask for; for one device the plain one."""
    if trainer.devices * trainer.num_nodes == 1:
        return "auto"
    return DDPStrategy(broadcast_buffers=False)
