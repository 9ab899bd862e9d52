"""Training that goes wrong quietly elsewhere: schedules that count batches, bad steps, NaN scores, untied weights."""

import csv
import dataclasses
import math

import pytest
import torch
from pytorch_lightning import Callback

from seq2seq.bundle import load_bundle
from seq2seq.config import (
    Direction,
    OptimizerKind,
    ScheduleKind,
    TokenizerConfig,
    Tying,
)
from seq2seq.nn.attention import attention_weights
from seq2seq.training.averaging import checkpoint_weights, read_checkpoint
from seq2seq.training.fit import fit
from seq2seq.training.loss import smoothed_cross_entropy
from seq2seq.training.metrics_file import MetricsCsv
from seq2seq.training.schedule import noam_lr


@pytest.fixture
def config(small_run):
    """A run that takes a second."""
    return small_run(
        data={
            "batch_tokens": 60,
            "max_length": 40,
            "tokenizer": TokenizerConfig(vocab_size=26, byte_fallback=False),
        },
        optim={"warmup_steps": 10},
        decode={"max_length": 3},
        trainer={"max_steps": 10, "validate_every": 50, "log_every": 1},
    )


def change(config, optim=None, **trainer):
    return dataclasses.replace(
        config,
        optim=dataclasses.replace(config.optim, **(optim or {})),
        trainer=dataclasses.replace(config.trainer, **trainer),
    )


def in_short_batches(config):
    """With more than 56 batches an epoch, so that every update of a test has all of its own."""
    return dataclasses.replace(config, data=dataclasses.replace(config.data, batch_tokens=20, max_length=20))


def logged(run, name):
    with (run / "metrics.csv").open(newline="") as stream:
        return {int(float(row["step"])): float(row[name]) for row in csv.DictReader(stream) if row[name]}


class Batches(Callback):
    """Counts batches, and spoils the gradients of chosen ones, counted from 1."""

    def __init__(self, *spoiled):
        self.spoiled, self.seen = spoiled, 0

    def on_train_start(self, trainer, pl_module):
        honest = pl_module.training_loss

        def loss(batch):
            self.seen += 1
            losses = honest(batch)
            factor = math.inf if self.seen in self.spoiled else 1.0
            return dataclasses.replace(losses, loss=losses.loss * factor)

        pl_module.training_loss = loss


def test_t4_the_learning_rate_is_highest_at_update_10_of_40_batches(config, tmp_path):
    batches, run = Batches(), tmp_path / "run"
    fit(change(in_short_batches(config), accumulate=4), run, [MetricsCsv(str(run))], [batches])
    rates = logged(run, "train/lr")
    assert batches.seen == 40
    assert [*rates] == [*range(1, 11)]
    assert max(rates, key=rates.__getitem__) == 10
    assert [*rates.values()] == pytest.approx([step / 10 * rates[10] for step in range(1, 11)])
    assert rates[10] == pytest.approx(16**-0.5 * 10**-0.5)


def test_t4_a_skipped_update_does_not_advance_the_schedule(config, tmp_path):
    batches, run = Batches(9, 21, 22), tmp_path / "run"  # of updates 3 and 6
    fit(change(in_short_batches(config), accumulate=4, max_steps=12), run, [MetricsCsv(str(run))], [batches])
    rates = logged(run, "train/lr")
    assert batches.seen == 4 * (12 + 2)
    assert rates == {step: pytest.approx(noam_lr(step, d_model=16, warmup_steps=10)) for step in range(1, 13)}
    assert max(rates, key=rates.__getitem__) == 10
    assert logged(run, "train/skipped_steps")[12] == 2


@pytest.mark.parametrize("schedule", ["linear", "cosine", "warmup_stable_decay"])
def test_t4_a_decay_ends_with_the_run(config, tmp_path, schedule):
    run, optim = tmp_path / "run", {"schedule": ScheduleKind[schedule], "lr": 0.01, "warmup_steps": 2}
    fit(change(config, optim | {"min_lr_ratio": 0.1}, max_steps=8), run, [MetricsCsv(str(run))])
    rates = logged(run, "train/lr")
    assert (rates[1], rates[2], rates[8]) == pytest.approx((0.005, 0.01, 0.001))


def test_t6_large_logits_and_rows_without_a_place_stay_finite_in_half_precision():
    for dtype in (torch.float16, torch.bfloat16):
        logits = torch.tensor([[6e4, -6e4, 0.0], [1e4, 1e4, 1e4]], dtype=dtype, requires_grad=True)
        loss, nll = smoothed_cross_entropy(logits, torch.tensor([1, 2]), 0.1)
        loss.backward()
        assert loss.isfinite()
        assert nll.isfinite()
        assert logits.grad.isfinite().all()
        query, nothing = torch.full((1, 2, 3, 4), 200.0, dtype=dtype), torch.zeros(1, 1, 1, 3, dtype=torch.bool)
        assert (attention_weights(query, query, nothing) == 0).all()


@pytest.mark.parametrize("optimizer", OptimizerKind)
def test_t6_one_bad_batch_is_no_step_and_leaves_no_trace_in_weights_or_log(config, tmp_path, optimizer):
    run = tmp_path / "run"
    fit(change(config, {"optimizer": optimizer}, max_steps=4), run, [MetricsCsv(str(run))], [Batches(3)])
    assert [*logged(run, "train/loss")] == [1, 2, 3, 4]
    assert all(math.isfinite(loss) for loss in logged(run, "train/loss").values())
    assert [*logged(run, "train/skipped_steps").values()] == [0, 0, 1, 1]
    assert all(value.isfinite().all() for value in checkpoint_weights(run / "checkpoints" / "last.ckpt").values())


def test_t6_several_bad_batches_in_a_row_end_the_run_with_the_last_good_checkpoint(config, tmp_path):
    run = tmp_path / "run"
    config = change(config, {"max_bad_steps": 3}, validate_every=2)
    with pytest.raises(ValueError, match=r"the gradients of 3 steps in a row are not finite.*last\.ckpt.*with a lower"):
        fit(config, run, callbacks=[Batches(*range(4, 99))])
    last = read_checkpoint(run / "checkpoints" / "last.ckpt")
    assert last["global_step"] in (2, 3)
    assert all(value.isfinite().all() for value in last["state_dict"].values())
    assert not (run / "bundle").exists()


def test_t7_a_nan_is_never_the_best_score_also_not_of_an_average(config, tmp_path, caplog):
    class Scores(Callback):
        values = iter([math.nan, 3.0, 2.0])

        def on_validation_epoch_end(self, trainer, pl_module):
            pl_module.log("valid/fake", next(self.values))

    watched = {"monitor": "valid/fake", "monitor_direction": Direction.min, "keep_best": 1}
    config = change(config, {"ema_decay": 0.5}, **watched, validate_every=2, max_steps=6)
    result = fit(config, tmp_path / "run", callbacks=[Scores()])
    assert result.best_score == 2.0
    (best,) = (tmp_path / "run" / "checkpoints").glob("best_*")
    assert best.name == "best_step_000006_fake_2.0000.ckpt"
    assert "valid/fake is NaN at step 2" in caplog.text


@pytest.mark.parametrize("tying", Tying)
def test_t9_tied_weights_are_one_after_training_resuming_and_loading(config, tmp_path, tying):
    class Tables(Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            model = pl_module.model
            source, target = (part.embedding.rows.weight for part in (model.encoder, model.decoder))
            assert (target is model.output) == (tying is not Tying.none)
            assert (source is target) == (tying is Tying.three_way)
            listed = [one for group in trainer.optimizers[0].param_groups for one in group["params"]]
            assert sum(one.numel() for one in listed) == model.num_parameters()

    config = dataclasses.replace(config, model=dataclasses.replace(config.model, tying=tying))
    config = change(config, {"ema_decay": 0.9, "optimizer": OptimizerKind.adamw, "weight_decay": 0.1}, max_steps=2)
    run = tmp_path / "run"
    fit(config, run, callbacks=[Tables()])
    resumed = dataclasses.replace(change(config, max_steps=3), resume=str(run / "checkpoints" / "last.ckpt"))
    model = load_bundle(fit(resumed, run, callbacks=[Tables()]).bundle).model
    assert (model.decoder.embedding.rows.weight is model.output) == (tying is not Tying.none)
    weights = checkpoint_weights(run / "checkpoints" / "last.ckpt")
    assert torch.equal(weights["output"], weights["decoder.embedding.rows.weight"]) == (tying is not Tying.none)


def test_t9_a_run_is_not_gone_on_with_by_another_optimiser(config, tmp_path):
    run = tmp_path / "run"
    fit(change(config, max_steps=1), run)
    before = (run / "config.yaml").read_bytes()
    other = change(config, {"optimizer": OptimizerKind.muon}, max_steps=2)
    with pytest.raises(ValueError, match=r"was trained with optim\.optimizer=adam, the options say muon"):
        fit(dataclasses.replace(other, resume=str(run / "checkpoints" / "last.ckpt")), run)
    assert (run / "config.yaml").read_bytes() == before
