"""Learning rate as a function of the optimiser step."""

import math


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
