"""Lightning's engine for the devices of a run."""

from pytorch_lightning.strategies import DDPStrategy, Strategy

from seq2seq.config import TrainerConfig


def build_strategy(trainer: TrainerConfig) -> Strategy | str:
    """The engine that the options ask for; for one device the plain one."""
    if trainer.devices * trainer.num_nodes == 1:
        return "auto"
    return DDPStrategy(broadcast_buffers=False)
