"""The optimiser of a run."""

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.optim import Adam, Optimizer

from seq2seq.config import OptimConfig


def build_optimizer(model: nn.Module, optim: OptimConfig, *, fused: bool) -> Optimizer:
    """The optimiser of a network's trained parameters; each tied matrix is one parameter.

    Its learning rates are set before every step by `set_rate`.

    Args:
        model: The network.
        optim: Kind and constants.
        fused: Whether one kernel does a whole step, where torch has one.

    Source:
        Adam as in Vaswani et al. 2017, arXiv:1706.03762, section 5.3.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return Adam(trained, lr=0.0, betas=(optim.beta1, optim.beta2), eps=optim.eps, fused=fused)


def set_rate(groups: Sequence[dict[str, Any]], rate: float) -> None:
    """Have the next step taken with this learning rate.

    Args:
        groups: The `param_groups` of the optimiser.
        rate: Of the schedule.
    """
    for group in groups:
        group["lr"] = rate
