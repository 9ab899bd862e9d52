"""What is said of a run before it begins is what the run then has."""

import dataclasses
import json
import logging
from pathlib import Path

import pytest

from seq2seq.config import BatchTokens, ModelConfig, OptimConfig, OptimizerKind, Precision, ScheduledSamplingConfig
from seq2seq.training import advice, batch_size, plan
from seq2seq.training.batch_size import worst_update
from seq2seq.training.fit import fit
from seq2seq.training.plan import make_plan
from seq2seq.training.plan_room import disk, memory
from seq2seq.training.preparation import prepare
from seq2seq.training.trial import Trial, num_bytes


def change(config, **trainer):
    return dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, **trainer))


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(plan, "WARM", 1)
    monkeypatch.setattr(plan, "TIMED", 2)


@pytest.fixture
def run(train_config, tmp_path):
    return prepare(train_config, tmp_path, None)


def test_the_plan_holds_the_numbers_of_the_run_and_writes_nothing(train_config, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    config = change(train_config, max_steps=None, max_epochs=3, accumulate=2)
    told = []

    found = make_plan(config, Path("outputs/x"), lambda what, share: told.append(share))

    run = prepare(config, tmp_path, None)
    assert found.parameters == found.trained == run.model.num_parameters() == sum(found.parts.values())
    assert found.text.steps_an_epoch == run.data.steps_an_epoch()
    assert found.text.target_tokens == sum(run.data.plain.target_lengths)
    assert found.text.tokens_an_update == found.text.target_tokens / found.text.steps_an_epoch
    assert found.text.padding_share == run.data.padding_share()
    assert (found.length.steps, found.length.by) == (3 * found.text.steps_an_epoch, "max_epochs")
    assert found.length.validations == -(-found.length.steps // 3)
    assert found.rates[0][0] == 1
    assert found.rates[-1][0] == found.length.steps
    weights = 4 * found.parameters
    assert found.memory.parts["optimiser (adam)"] == pytest.approx(2 * weights, rel=0.05)
    assert found.memory.measured is None or found.memory.measured > found.memory.together
    speed = found.speed
    whole = found.length.steps * speed.step_seconds + found.length.validations * speed.validation_seconds
    assert speed.training_seconds == pytest.approx(whole)
    assert 0 < speed.validation_share < 1
    assert told[-1] == 1.0
    assert told == sorted(told)
    assert list(Path().iterdir()) == []
    json.dumps(dataclasses.asdict(found))


def test_several_devices_share_an_epoch(train_config, run):
    one = plan._text(train_config, run)
    two = plan._text(change(train_config, devices=2), run)

    assert two.batches_an_update == 2
    assert two.steps_an_epoch == -(-one.steps_an_epoch // 2)


def test_the_disk_is_what_a_run_fills(train_config, tmp_path):
    sizes = ModelConfig(d_model=64, num_heads=2, d_ff=96, num_encoder_layers=1, num_decoder_layers=1)
    config = dataclasses.replace(
        change(train_config, keep_best=1, average_last=2, max_steps=3, validate_every=1), model=sizes
    )
    run = prepare(config, tmp_path, None)
    found = disk(config, run, 8 * run.model.num_parameters(), tmp_path / "run")
    fit(config, tmp_path / "run")

    sizes = {file.name: file.stat().st_size for file in (tmp_path / "run" / "checkpoints").iterdir()}
    recent = [size for name, size in sizes.items() if name.startswith("recent")]
    (best,) = (size for name, size in sizes.items() if name.startswith("best"))
    number, size = found.recent
    assert len(recent) == number
    assert max(recent) == pytest.approx(size, abs=40_000)
    assert best == pytest.approx(found.best[1], abs=40_000)
    number, size = found.last
    assert number == len(sizes) - len(recent) - 1
    assert sizes["last.ckpt"] == pytest.approx(size, abs=80_000)
    assert found.together > sum(sizes.values()) - 80_000
    assert found.free > 0


def test_memory_follows_the_optimiser_and_the_precision(train_config, run):
    weights = num_bytes(run.module)

    def parts(config):
        update = worst_update(run.data, config.data.batch_tokens)
        found = memory(config, run.module, run.model, update, Trial((1.0,), 10**9, 2 * weights, "cpu"))
        assert found.together == sum(found.parts.values()) < found.measured
        return found.parts

    plain = parts(train_config)
    assert (plain["weights"], plain["gradients"], plain["optimiser (adam)"]) == (weights, weights, 2 * weights)

    other = dataclasses.replace(train_config, optim=OptimConfig(optimizer=OptimizerKind.adafactor, ema_decay=0.9))
    mixed = parts(change(other, precision=Precision.bf16_mixed))
    assert (mixed["moving average"], mixed["weights in half precision"]) == (weights, weights // 2)
    assert "optimiser (adafactor)" in mixed
    assert mixed["decoder activations"] == plain["decoder activations"] // 2
    true = parts(change(train_config, precision=Precision.bf16_true))
    assert true["weights"] == true["gradients"] == weights // 2

    deep = dataclasses.replace(train_config, model=dataclasses.replace(train_config.model, num_decoder_layers=8))
    kept, again = parts(deep), parts(change(deep, activation_checkpointing=True))
    assert again["decoder activations"] < kept["decoder activations"] / 2


def test_a_language_model_has_blocks(text_config):
    found = make_plan(text_config, Path("x"))

    assert "blocks of up to 32 pieces" in found.text.size
    assert found.text.target_tokens > 0
    assert found.speed.validation_seconds > 0


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(5.0, 50), (10.0, 100), (12.0, 100), (13.0, 110), (26.0, 220), (0.01, 1)],
)
def test_validations_take_their_share_of_the_minutes(seconds, expected):
    # 100 steps of a tenth of a second between validations of two seconds
    assert plan._steps_within(seconds, step=0.1, validation=2.0, every=100) == expected


def test_a_run_limited_by_minutes_says_how_far_it_comes(train_config):
    late = dataclasses.replace(train_config, scheduled_sampling=ScheduledSamplingConfig(rate=0.5, end_step=10**7))
    found = make_plan(change(late, max_steps=None, max_minutes=0.2), Path("x"))

    assert found.length.by == "max_minutes"
    assert found.length.steps > 1
    assert found.length.epochs == found.length.steps / found.text.steps_an_epoch
    assert any("and not yet scheduled_sampling.rate=0.5" in warning for warning in found.warnings)


def test_warnings_are_part_of_the_plan_and_the_search_for_the_size_of_a_batch_too(train_config, monkeypatch, caplog):
    monkeypatch.setattr(batch_size, "LEAST_STEPS", 14)
    monkeypatch.setattr(advice, "RARE", 10**6)
    with caplog.at_level(logging.INFO):
        found = make_plan(change(train_config, batch_tokens=BatchTokens.auto), Path("x"))

    assert any("warm-up" in warning for warning in found.warnings)
    assert any("100% of the" in warning and "next to nothing is learned" in warning for warning in found.warnings)
    assert f"data.batch_tokens={found.batch_tokens}: " in caplog.text
