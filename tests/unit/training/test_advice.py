"""Warnings before a run that will probably come to nothing."""

import dataclasses
import logging

import pytest

from seq2seq.config import InitConfig, NormPlacement
from seq2seq.training.advice import advise


@pytest.fixture
def said(train_config, caplog):
    """What is said of a run with some options changed, beside warm-up that is too long for it."""

    def run(steps=None, epochs=5, init=None, optim=None, **model):
        caplog.clear()
        config = dataclasses.replace(
            train_config,
            model=dataclasses.replace(train_config.model, **model),
            optim=dataclasses.replace(train_config.optim, **(optim or {"warmup_steps": 400})),
            trainer=dataclasses.replace(train_config.trainer, max_steps=steps, max_epochs=epochs),
            init=init or InitConfig(),
        )
        with caplog.at_level(logging.INFO):
            advise(config, steps_an_epoch=1000)
        return caplog.text

    return run


def test_a_sound_run_is_not_commented_on(said):
    assert said() == ""


@pytest.mark.parametrize("stack", ["num_encoder_layers", "num_decoder_layers"])
def test_a_deep_post_ln_stack_is_warned_about_and_others_are_not(said, stack):
    text = said(**{stack: 13})
    assert "a Post-LN stack of 13 layers will probably not train; choose model.norm_placement=pre, or deepnorm" in text
    assert said(**{stack: 12}) == ""
    for placement in (NormPlacement.pre, NormPlacement.deepnorm):
        assert said(**{stack: 40}, norm_placement=placement) == ""


def test_trap_11_post_ln_without_warmup_is_warned_about_and_others_are_not(said):
    for warmup in (1, 99):
        optim = {"warmup_steps": warmup}
        assert f"optim.warmup_steps={warmup} is next to no warm-up, without which Post-LN" in said(optim=optim)
        assert said(optim=optim, norm_placement=NormPlacement.pre) == ""
        assert said(optim=optim, norm_placement=NormPlacement.deepnorm) == ""
    assert said(optim={"warmup_steps": 100}) == ""


def test_in_a_run_of_a_few_steps_warmup_is_not_missed(said):
    assert said(steps=100, optim={"warmup_steps": 10}) == ""
    assert "next to no warm-up" in said(steps=101, optim={"warmup_steps": 10})


def test_a_run_that_is_mostly_warmup_is_warned_about(said):
    assert "this run takes at most 799 steps (1000 an epoch)" in said(steps=799)
    assert said(steps=800) == ""
    assert "at most 1000 steps" in said(epochs=1, optim={"warmup_steps": 501})


def test_the_rate_for_random_weights_is_warned_about_when_fine_tuning(said):
    init = InitConfig(from_="bundle")
    text = said(init=init)  # D=16: 1 / sqrt(16 * 400)
    assert "the learning rate rises to 1.3e-02, at which a fine-tuned model forgets" in text
    assert "for example optim.lr_factor=0.02" in text
    assert said(init=init, optim={"warmup_steps": 400, "lr_factor": 0.02}) == ""
