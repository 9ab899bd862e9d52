"""What is said before a run that is likely to fail, or to end before it has learned anything."""

import logging

from seq2seq.config import ModelConfig, NormPlacement, TrainConfig
from seq2seq.training.schedule import noam_lr

log = logging.getLogger(__name__)

DEEP = 12
"""Post-LN stacks with more layers than this often do not train at all (Wang et al. 2022, arXiv:2203.00555)."""
LEAST_WARMUP = 100
"""Fewer steps are no warm-up for a Post-LN stack (Xiong et al. 2020, arXiv:2002.04745)."""

GENTLE = 5e-4
"""Fine-tuning at a higher rate than this usually costs more of what a model knows than it gains."""


def advise(config: TrainConfig, steps_an_epoch: int) -> None:
    """Warn of what the options will probably lead to.

    Args:
        config: Every option.
        steps_an_epoch: Optimiser steps of the first epoch.
    """
    limits = [
        config.trainer.max_steps,
        steps_an_epoch * config.trainer.max_epochs if config.trainer.max_epochs else None,
    ]
    steps = min((limit for limit in limits if limit is not None), default=None)
    warmup = config.optim.warmup_steps
    if steps is not None and steps < 2 * warmup:
        log.warning(
            "this run takes at most %d steps (%d an epoch), of which optim.warmup_steps=%d are warm-up; choose a "
            "shorter one, for example optim.warmup_steps=%d, or more steps by a smaller data.batch_tokens",
            steps,
            steps_an_epoch,
            warmup,
            max(1, steps // 10),
        )
    if config.model.norm_placement is NormPlacement.post:
        _advise_post(config.model, warmup, steps)
    if config.init.from_ is not None:
        _advise_rate(config)


def _advise_rate(config: TrainConfig) -> None:
    """Warn of a learning rate that is meant for random weights."""
    warmup, factor = config.optim.warmup_steps, config.optim.lr_factor
    peak = noam_lr(warmup, d_model=config.model.d_model, warmup_steps=warmup, factor=factor)
    if peak > GENTLE:
        log.warning(
            "the learning rate rises to %.1e, at which a fine-tuned model forgets much of what it knows; choose a "
            "smaller one, for example optim.lr_factor=%.2g",
            peak,
            factor * GENTLE / peak / 2,
        )


def _advise_post(model: ModelConfig, warmup: int, steps: int | None) -> None:
    """Warn of a Post-LN stack too deep, or without warm-up."""
    layers = max(model.num_encoder_layers, model.num_decoder_layers)
    if layers > DEEP:
        log.warning(
            "a Post-LN stack of %d layers will probably not train; choose model.norm_placement=pre, or deepnorm, which "
            "keeps the norms where they are",
            layers,
        )
    # in a run that is shorter than any warm-up nothing is learned anyway
    if warmup < LEAST_WARMUP and (steps is None or steps > LEAST_WARMUP):
        log.warning(
            "optim.warmup_steps=%d is next to no warm-up, without which Post-LN stacks diverge or stay poor; choose "
            "some hundred steps or more, or model.norm_placement=pre",
            warmup,
        )
