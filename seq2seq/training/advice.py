"""What is said before a run that is likely to fail, or to end before it has learned anything."""

import logging
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from seq2seq.config import (
    DECAYING,
    ModelConfig,
    NormPlacement,
    OptimizerKind,
    ScheduledSamplingConfig,
    TokenizerKind,
    TrainConfig,
)
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.training.data_module import EpochDataModule, ParallelDataModule, Tokenizers
from seq2seq.training.idle_options import idle_options
from seq2seq.training.schedule import last_step, peak_rate
from seq2seq.training.scheduled_sampling import mixing_rate
from seq2seq.training.text_data_module import TextDataModule

log = logging.getLogger(__name__)

DEEP = 12
"""Post-LN stacks with more layers than this often do not train at all (Wang et al. 2022, arXiv:2203.00555)."""
LEAST_WARMUP = 100
"""Fewer steps are no warm-up for a Post-LN stack (Xiong et al. 2020, arXiv:2002.04745)."""

GENTLE = 5e-4
"""Fine-tuning at a higher rate than this usually costs more of what a model knows than it gains."""

RARE = 10
"""Of a piece that the training text has less often, next to nothing is learned."""
MOST_RARE = 0.5
"""A vocabulary with a larger share of such pieces is larger than the text supports. In the 29,000 pairs of Multi30k it
is 15% of 8,000 pieces (BPE) and 63% of 16,000. Gowda and May 2020, arXiv:2004.02334, ask for more: 95% of them, 100
times."""
PLENTY = 1000
"""With this many pieces of text for each of the vocabulary, nothing is counted."""


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
    for sentence in idle_options(config):
        log.warning("%s", sentence)
    advise_on_sampling(config.scheduled_sampling, steps)
    if config.model.norm_placement is NormPlacement.post:
        _advise_post(config.model, warmup, steps)
    if config.init.from_ is not None:
        _advise_rate(config)
    if config.optim.schedule in DECAYING and config.optim.total_steps is None and config.trainer.max_minutes:
        log.warning(
            "optim.schedule=%s goes down until step %s; if trainer.max_minutes=%g ends the run before that, the "
            "learning rate is still high then: give optim.total_steps, the steps that the minutes will do for",
            config.optim.schedule.name,
            last_step(config, steps_an_epoch),
            config.trainer.max_minutes,
        )


def advise_on_sampling(sampling: ScheduledSamplingConfig, steps: int | None) -> None:
    """Warn of scheduled sampling whose share has hardly risen when the run ends.

    Args:
        sampling: The options.
        steps: The most that the run takes; None where that is not known.
    """
    if steps is None or sampling.rate == 0:
        return
    reached = mixing_rate(steps, sampling)
    if reached < sampling.rate / 2:
        log.warning(
            "this run takes at most %d steps, at which scheduled sampling replaces %.3g of the pieces and not yet "
            "scheduled_sampling.rate=%g; choose an earlier scheduled_sampling.start_step or end_step than %d and %d, "
            "for example scheduled_sampling.end_step=%d",
            steps,
            reached,
            sampling.rate,
            sampling.start_step,
            sampling.end_step,
            max(1, steps // 2),
        )


def _advise_rate(config: TrainConfig) -> None:
    """Warn of a learning rate that is meant for random weights."""
    peak, optim = peak_rate(config.optim, config.model.d_model), config.optim
    if optim.optimizer is OptimizerKind.adafactor:  # whose rates are shares
        return
    option, value = ("lr_factor", optim.lr_factor) if optim.lr is None else ("lr", optim.lr)
    if peak > GENTLE:
        log.warning(
            "the learning rate rises to %.1e, at which a fine-tuned model forgets much of what it knows; choose a "
            "smaller one, for example optim.%s=%.2g",
            peak,
            option,
            value * GENTLE / peak / 2,
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


def advise_on_vocabulary(config: TrainConfig, tokenizers: Tokenizers, data: EpochDataModule) -> None:
    """Warn of a vocabulary that is larger than the training text supports.

    Args:
        config: Every option.
        tokenizers: The run's; those of a bundle that is fine-tuned are as they are.
        data: The encoded training text.
    """
    how = config.data.tokenizer
    if config.init.from_ is not None or how.kind is TokenizerKind.char:  # no size is asked of a vocabulary of letters
        return
    for what, tokenizer, rows in _encoded(tokenizers, data):
        num_pieces = sum(map(len, rows))
        if num_pieces > PLENTY * tokenizer.vocab_size:
            continue
        counts = _occurrences(tokenizer, chain.from_iterable(rows), num_pieces)
        rare = int((counts < RARE).sum())
        if rare > MOST_RARE * len(counts):
            enough = tokenizer.vocab_size - rare
            log.warning(
                "%.0f%% of the %s pieces of the %svocabulary occur less than %d times in the training text, and %s not "
                "once, so next to nothing is learned of them; choose a smaller one, for example %s, or give more text",
                100 * rare / len(counts),
                f"{len(counts):,}",
                what,
                RARE,
                f"{int((counts == 0).sum()):,}",
                f"data.tokenizer.vocab_size={_round(enough)}"
                if how.source_model is None
                else f"another tokenizer than data.tokenizer.source_model, of about {_round(enough)} pieces",
            )


def _encoded(tokenizers: Tokenizers, data: EpochDataModule) -> Iterable[tuple[str, Tokenizer, Sequence[Sequence[int]]]]:
    """For each vocabulary its name in a sentence, its tokenizer, and the training text as its ids."""
    if isinstance(data, TextDataModule):
        return [("", tokenizers.source, [data.train_text.ids.tolist()])]
    assert isinstance(data, ParallelDataModule)
    sources, targets = data.plain.sources, data.plain.targets
    if tokenizers.source is tokenizers.target:
        return [("", tokenizers.source, [*sources, *targets])]
    return [("source ", tokenizers.source, sources), ("target ", tokenizers.target, targets)]


def _occurrences(tokenizer: Tokenizer, ids: Iterable[int], number: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """How often each piece occurs; special ones and bytes, which are there for what is not foreseen, left out."""
    counts = np.bincount(np.fromiter(ids, np.int64, number), minlength=tokenizer.vocab_size)
    special = tokenizer.special
    reserved = {special.pad, special.bos, special.eos, special.unk, *tokenizer.byte_ids}
    return counts[[id_ for id_ in range(tokenizer.vocab_size) if id_ not in reserved]]


def _round(number: int) -> int:
    """To two digits, upwards: it is no more precise than that."""
    step: int = 10 ** max(0, len(str(number)) - 2)
    return -(-number // step) * step
