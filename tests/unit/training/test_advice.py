"""Warnings before a run that will probably come to nothing."""

import dataclasses
import logging
from collections import Counter
from itertools import chain

import pytest

from seq2seq.config import (
    InitConfig,
    MixingSchedule,
    NormPlacement,
    OptimizerKind,
    Replacement,
    ScheduledSamplingConfig,
    ScheduleKind,
    TokenizerConfig,
    TokenizerKind,
    Tying,
)
from seq2seq.corpus.parallel import pair_up
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.training import advice
from seq2seq.training.advice import advise, advise_on_vocabulary
from seq2seq.training.data_module import ParallelDataModule, Tokenizers
from seq2seq.training.text_data_module import TextDataModule


@pytest.fixture
def said(train_config, caplog):
    """What is said of a run with some options changed, beside warm-up that is too long for it."""

    def run(steps=None, epochs=5, init=None, optim=None, max_minutes=None, sampling=None, **model):
        caplog.clear()
        config = dataclasses.replace(
            train_config,
            model=dataclasses.replace(train_config.model, **model),
            optim=dataclasses.replace(train_config.optim, **(optim or {"warmup_steps": 400})),
            trainer=dataclasses.replace(
                train_config.trainer, max_steps=steps, max_epochs=epochs, max_minutes=max_minutes
            ),
            init=init or InitConfig(),
            scheduled_sampling=ScheduledSamplingConfig(**(sampling or {})),
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


def test_the_rate_of_every_schedule_is_looked_at_when_fine_tuning(said):
    init = InitConfig(from_="bundle")
    optim = {"warmup_steps": 0, "schedule": ScheduleKind.linear, "lr": 1e-3}
    text = said(init=init, optim=optim, norm_placement=NormPlacement.pre)
    assert "the learning rate rises to 1.0e-03, at which a fine-tuned model forgets" in text
    assert "for example optim.lr=0.00025" in text
    for gentle in ({"lr": 5e-4}, {"lr": 0.01, "optimizer": OptimizerKind.adafactor}):
        assert said(init=init, optim=optim | gentle, norm_placement=NormPlacement.pre) == ""


def test_post_ln_without_any_warmup_is_warned_about_with_every_schedule(said):
    optim = {"warmup_steps": 0, "schedule": ScheduleKind.cosine, "lr": 1e-4}
    assert "optim.warmup_steps=0 is next to no warm-up, without which Post-LN stacks diverge" in said(optim=optim)


def test_a_decay_that_the_minutes_may_cut_off_is_said(said):
    optim = {"warmup_steps": 400, "schedule": ScheduleKind.linear, "lr": 1e-4}
    text = said(optim=optim, max_minutes=30.0)
    assert "optim.schedule=linear goes down until step 5000; if trainer.max_minutes=30 ends the run before that" in text
    assert said(optim=optim | {"total_steps": 900}, max_minutes=30.0) == ""
    assert said(max_minutes=30.0) == ""


@pytest.mark.parametrize(
    ("optim", "sampling", "sentence"),
    [
        ({"schedule": "linear", "lr": 1e-4, "lr_factor": 0.1}, {}, "lr_factor=0.1 does nothing: optim.lr=0.0001 is"),
        ({"muon_lr": 0.1}, {}, "optim.muon_lr=0.1 does nothing: optim.optimizer=adam has no use for it"),
        ({"optimizer": "adafactor", "beta2": 0.9}, {}, "optim.beta2=0.9 does nothing: optim.optimizer=adafactor has"),
        ({"decay_share": 0.5}, {}, "optim.decay_share=0.5 does nothing: optim.schedule=noam has no use for it"),
        ({}, {"passes": 3}, "scheduled_sampling.passes=3 does nothing: scheduled_sampling.rate=0 is off; give it"),
        ({}, {"rate": 0.5, "temperature": 0.5}, "temperature=0.5 does nothing: scheduled_sampling.replacement=argmax"),
        ({}, {"rate": 0.5, "sure": 0.5}, "sure=0.5 does nothing: scheduled_sampling.choice=random has no use for it"),
    ],
)
def test_an_option_that_another_one_makes_idle_is_named(said, optim, sampling, sentence):
    kinds = {"schedule": ScheduleKind, "optimizer": OptimizerKind}
    optim = {name: kinds[name][value] if name in kinds else value for name, value in optim.items()}
    assert sentence in said(optim={"warmup_steps": 400} | optim, sampling={"end_step": 900} | sampling)


def test_options_that_do_something_are_not_commented_on(said):
    muon = {"warmup_steps": 400, "optimizer": OptimizerKind.muon, "muon_lr": 0.1, "beta2": 0.9}
    drawn = {"rate": 0.5, "end_step": 900, "replacement": Replacement.sample, "temperature": 0.5, "passes": 3}
    assert said(optim=muon, sampling=drawn) == ""


def test_two_equal_passes_of_r_drop_are_warned_about(said):
    optim = {"warmup_steps": 400, "r_drop": 5.0}
    assert said(optim=optim) == ""
    assert "optim.r_drop=5.0 does nothing: without model.dropout its two passes" in said(optim=optim, dropout=0.0)


def test_scheduled_sampling_that_hardly_begins_before_the_end_is_warned_about(said):
    text = said(sampling={"rate": 0.5, "end_step": 10_001})
    assert "at most 5000 steps, at which scheduled sampling replaces 0.25 of the pieces and not yet" in text
    assert "for example scheduled_sampling.end_step=2500" in text
    assert said(sampling={"rate": 0.5, "end_step": 10_000}) == ""
    constant = {"rate": 0.5, "schedule": MixingSchedule.constant}
    assert said(sampling=constant | {"start_step": 4999}) == ""
    assert "replaces 0 of the pieces" in said(sampling=constant | {"start_step": 20_000})


def parallel(config, text, tokenizers):
    return ParallelDataModule(text, text, tokenizers, config.data)


def vocabulary(text, size, **options):
    tokenizer, _ = train_tokenizer(text.source + text.target, TokenizerConfig(vocab_size=size, **options))
    return tokenizer


@pytest.fixture
def words():
    """140 words; the first 40 of them thirty times, the others once. No two share their first and last letters."""
    letters = "abcdefghijklmnop"
    names = [letters[i % 16] + letters[i // 16] * 2 for i in range(140)]
    often = [" ".join(names[i : i + 8]) for i in range(0, 40, 8)]
    lines = often * 30 + [" ".join(names[i : i + 10]) for i in range(40, 140, 10)]
    return pair_up(lines, lines)


def test_a_vocabulary_larger_than_the_text_supports_is_explained(train_config, words, caplog):
    tokenizer = vocabulary(words, 420, kind=TokenizerKind.bpe)
    data = parallel(train_config, words, Tokenizers(tokenizer, tokenizer))
    counts = Counter(chain.from_iterable([*data.plain.sources, *data.plain.targets]))
    real = [id_ for id_ in range(4, tokenizer.vocab_size) if id_ not in tokenizer.byte_ids]
    rare = sum(counts[id_] < 10 for id_ in real)
    assert rare > len(real) / 2
    advise_on_vocabulary(train_config, data.tokenizers, data)
    share, never = round(100 * rare / len(real)), sum(counts[id_] == 0 for id_ in real)
    assert (
        f"{share}% of the {len(real)} pieces of the vocabulary occur less than 10 times in the training text, and "
        f"{never} not once, so next to nothing is learned of them; choose a smaller one, for example "
        "data.tokenizer.vocab_size="
    ) in caplog.text
    proposed = int(caplog.text.partition("vocab_size=")[2].partition(",")[0])
    assert 420 - rare <= proposed < 420 - rare + 10
    vocabulary(words, proposed, kind=TokenizerKind.bpe)  # can be made


def test_two_vocabularies_are_looked_at_one_by_one_and_a_given_one_is_not_to_be_trained(train_config, words, caplog):
    large = vocabulary(words, 420, kind=TokenizerKind.bpe)
    small = vocabulary(words, 300, kind=TokenizerKind.bpe)
    data = parallel(train_config, words, Tokenizers(small, large))
    how = dataclasses.replace(train_config.data.tokenizer, source_model="a.spm", target_model="b.spm", joint=False)
    config = dataclasses.replace(
        train_config,
        data=dataclasses.replace(train_config.data, tokenizer=how),
        model=dataclasses.replace(train_config.model, tying=Tying.two_way),
    )
    advise_on_vocabulary(config, data.tokenizers, data)
    assert "pieces of the target vocabulary occur less" in caplog.text
    assert (
        "choose a smaller one, for example another tokenizer than data.tokenizer.source_model, of about" in caplog.text
    )
    assert "source vocabulary" not in caplog.text


def test_a_vocabulary_that_the_text_supports_is_not_commented_on(train_config, text, tokenizers, caplog, monkeypatch):
    data = parallel(train_config, text, tokenizers)
    advise_on_vocabulary(train_config, tokenizers, data)
    assert caplog.text == ""
    monkeypatch.setattr(advice, "RARE", 10**9)
    advise_on_vocabulary(train_config, tokenizers, data)
    assert "100% of the" in caplog.text
    caplog.clear()
    tuned = dataclasses.replace(train_config, init=InitConfig(from_="bundle"))
    advise_on_vocabulary(tuned, tokenizers, data)
    monkeypatch.setattr(advice, "PLENTY", 0)
    advise_on_vocabulary(train_config, tokenizers, data)
    assert caplog.text == ""


def test_the_vocabulary_of_a_language_model_is_looked_at_too_but_not_one_of_letters(text_config, words, caplog):
    how = {"kind": TokenizerKind.bpe, "keep_whitespace": True, "normalization": "identity"}
    tokenizer = vocabulary(words, 420, **how)
    data = TextDataModule(words.source, words.source, tokenizer, text_config.data)
    config = dataclasses.replace(
        text_config, data=dataclasses.replace(text_config.data, tokenizer=TokenizerConfig(vocab_size=420, **how))
    )
    advise_on_vocabulary(text_config, Tokenizers(tokenizer, tokenizer), data)  # says char
    assert caplog.text == ""
    advise_on_vocabulary(config, Tokenizers(tokenizer, tokenizer), data)
    assert "pieces of the vocabulary occur less than 10 times" in caplog.text
