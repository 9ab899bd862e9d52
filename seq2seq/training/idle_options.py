"""Options that a user has set and that do nothing, because of another option."""

from collections.abc import Iterator
from dataclasses import fields

from seq2seq.config import (
    MixingChoice,
    OptimConfig,
    OptimizerKind,
    Replacement,
    ScheduledSamplingConfig,
    ScheduleKind,
    TrainConfig,
)


def idle_options(config: TrainConfig) -> Iterator[str]:
    """For each such option what it is and why it does nothing; an option at its default is not set.

    They are no errors: an experiment's file may set what a choice on the command line then makes idle.

    Args:
        config: Every option.
    """
    optim, sampling, model = config.optim, config.scheduled_sampling, config.model
    yield from _set(optim, "lr_factor", optim.lr is not None, f"optim.lr={optim.lr} is the highest rate itself")
    for name in ("muon_lr", "muon_momentum"):
        yield from _set(optim, name, optim.optimizer is not OptimizerKind.muon, _by(optim, "optimizer"))
    for name in ("beta1", "beta2", "eps"):
        yield from _set(optim, name, optim.optimizer is OptimizerKind.adafactor, _by(optim, "optimizer"))
    yield from _set(
        optim, "decay_share", optim.schedule is not ScheduleKind.warmup_stable_decay, _by(optim, "schedule")
    )
    dropouts = model.dropout, model.attention_dropout, model.activation_dropout
    yield from _set(
        optim, "r_drop", not any(dropouts), "without model.dropout its two passes over a batch are one and the same"
    )
    if sampling.rate == 0:
        for option in fields(sampling):
            yield from _set(sampling, option.name, True, "scheduled_sampling.rate=0 is off; give it a share of pieces")
        return
    yield from _set(sampling, "temperature", sampling.replacement is Replacement.argmax, _by(sampling, "replacement"))
    for name in ("sure", "surest"):
        yield from _set(sampling, name, sampling.choice is MixingChoice.random, _by(sampling, "choice"))


def _set(group: OptimConfig | ScheduledSamplingConfig, name: str, idle: bool, why: str) -> Iterator[str]:
    """The sentence about an option, if it is idle and was set."""
    value = getattr(group, name)
    if idle and value != getattr(type(group)(), name):
        yield f"{_prefix(group)}.{name}={getattr(value, 'name', value)} does nothing: {why}"


def _by(group: OptimConfig | ScheduledSamplingConfig, name: str) -> str:
    """The choice that makes an option idle."""
    return f"{_prefix(group)}.{name}={getattr(group, name).name} has no use for it"


def _prefix(group: OptimConfig | ScheduledSamplingConfig) -> str:
    return "optim" if isinstance(group, OptimConfig) else "scheduled_sampling"
