"""Learning rate as a function of the optimiser step."""

import math
from collections.abc import Callable

from seq2seq.config import OptimConfig, ScheduleKind, TrainConfig


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


def peak_rate(optim: OptimConfig, d_model: int) -> float:
    """The highest learning rate of a schedule, reached at the end of the warm-up.

    Args:
        optim: Kind of schedule and its constants.
        d_model: Width D of the model.
    """
    if optim.lr is not None:
        return optim.lr
    return noam_lr(optim.warmup_steps, d_model=d_model, warmup_steps=optim.warmup_steps, factor=optim.lr_factor)


def learning_rate(step: int, optim: OptimConfig, d_model: int, total_steps: int | None) -> float:
    """The rate that an optimiser step uses.

    All schedules rise linearly to their peak, which step `warmup_steps` uses; without warm-up step 1 does. A decay ends
    at step `total_steps` with the share `min_lr_ratio` of the peak, and the rate stays there.

    Args:
        step: Counted from 1.
        optim: Kind of schedule and its constants.
        d_model: Width D of the model.
        total_steps: The step at which a decay ends; None where that is not known.

    Raises:
        ValueError: if the schedule decays towards an end that is not known.

    Source:
        noam: Vaswani et al. 2017, arXiv:1706.03762, equation 3. cosine: Loshchilov and Hutter 2017, arXiv:1608.03983,
        equation 5, without restarts. warmup_stable_decay: Hu et al. 2024, arXiv:2404.06395, section 4, with a linear
        decay as in Haegele et al. 2024, arXiv:2405.18392.
    """
    step = max(step, 1)
    if optim.schedule is ScheduleKind.noam:
        return noam_lr(step, d_model=d_model, warmup_steps=optim.warmup_steps, factor=optim.lr_factor)
    peak = peak_rate(optim, d_model)
    if step <= optim.warmup_steps:
        return peak * step / optim.warmup_steps
    if optim.schedule is ScheduleKind.constant:
        return peak
    if optim.schedule is ScheduleKind.inverse_sqrt:
        return peak * math.sqrt(max(optim.warmup_steps, 1) / step)
    if total_steps is None:
        raise ValueError(
            f"optim.schedule={optim.schedule.name} needs to know the last step; give optim.total_steps or "
            "trainer.max_steps"
        )
    left = _SHARES[optim.schedule](_decayed(step, optim, total_steps))
    return peak * (optim.min_lr_ratio + (1 - optim.min_lr_ratio) * left)


_SHARES: dict[ScheduleKind, Callable[[float], float]] = {
    ScheduleKind.linear: lambda done: 1 - done,
    ScheduleKind.cosine: lambda done: (1 + math.cos(math.pi * done)) / 2,
    ScheduleKind.warmup_stable_decay: lambda done: 1 - done,
}
"""How much of the way from the lowest rate up to the peak is left when a share of the decay is done."""


def _decayed(step: int, optim: OptimConfig, total_steps: int) -> float:
    """How much of the decay is done, 0 to 1. Without warm-up the first step still uses the peak."""
    first = max(optim.warmup_steps, 1)
    if optim.schedule is ScheduleKind.warmup_stable_decay:
        first = max(first, total_steps - round(optim.decay_share * total_steps))
    if step >= total_steps:
        return 1.0
    return max(0.0, (step - first) / (total_steps - first))


def last_step(config: TrainConfig, steps_an_epoch: int) -> int | None:
    """The optimiser step with which a decay ends, by the options the run's last; None where minutes alone limit it."""
    if config.optim.total_steps is not None:
        return config.optim.total_steps
    limits = [
        config.trainer.max_steps,
        steps_an_epoch * config.trainer.max_epochs if config.trainer.max_epochs else None,
    ]
    return min((limit for limit in limits if limit is not None), default=None)
