"""Learning rate as a function of the optimiser step."""

import math

from seq2seq.config import OptimConfig, TrainConfig


def noam_lr(step: int, *, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """factor * D^-0.5 * min(step^-0.5, step * warmup^-1.5): linear warm-up, then inverse square root.

    Args:
        step: Counted from 1: the rate that the first optimiser step uses is that of step 1.
        d_model: Width D of the model.
        warmup_steps: The peak is reached at this step.
        factor: Scales the whole curve; 1 in the paper.

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, equation 3.
    """
    step = max(step, 1)
    return factor / math.sqrt(d_model) * min(1 / math.sqrt(step), step / math.sqrt(warmup_steps) ** 3)


def learning_rate(step: int, optim: OptimConfig, d_model: int, total_steps: int | None) -> float:
    """The rate that an optimiser step uses.

    Args:
        step: Counted from 1.
        optim: Kind of schedule and its constants.
        d_model: Width D of the model.
        total_steps: The step at which a decay ends; None where that is not known.
    """
    del total_steps
    return noam_lr(step, d_model=d_model, warmup_steps=optim.warmup_steps, factor=optim.lr_factor)


def last_step(config: TrainConfig, steps_an_epoch: int) -> int | None:
    """The optimiser step with which a run ends; None where minutes alone limit it."""
    limits = [
        config.optim.total_steps,
        config.trainer.max_steps,
        steps_an_epoch * config.trainer.max_epochs if config.trainer.max_epochs else None,
    ]
    if limits[0] is not None:
        return limits[0]
    return min((limit for limit in limits if limit is not None), default=None)
