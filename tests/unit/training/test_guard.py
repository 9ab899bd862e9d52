"""Steps that are skipped, clipping with and without a scaler, and runs that end because no step can be taken."""

import csv
import dataclasses
import math

import pytest
import torch
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.plugins import MixedPrecision
from torch import nn
from torch.amp import GradScaler
from torch.utils.data import DataLoader

from seq2seq.config import ModelConfig, OptimConfig, OptimizerKind, ScheduleKind
from seq2seq.corpus.batching import make_batch
from seq2seq.models import build_model
from seq2seq.text.special import SpecialIds
from seq2seq.training.averaging import checkpoint_weights, read_checkpoint
from seq2seq.training.fit import fit
from seq2seq.training.guard import BadStepsError, StepGuard, clip_gradients, lower_scale
from seq2seq.training.metrics_file import MetricsCsv
from seq2seq.training.objectives import TranslationModule


class Poison(Callback):
    """Makes the gradients of chosen training steps, counted from 0 and skipped ones included, not a number."""

    def __init__(self, *steps, value=math.nan):
        self.steps, self.value = steps, value
        self.taken = []

    def on_train_start(self, trainer, pl_module):
        honest, number = pl_module.training_loss, iter(range(10_000))

        def loss(batch):
            losses = honest(batch)
            if next(number) in self.steps:
                losses = dataclasses.replace(losses, loss=losses.loss * self.value, nll=losses.nll * self.value)
            return losses

        pl_module.training_loss = loss

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.taken.append(trainer.global_step)


def change(config, **trainer):
    return dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, **trainer))


def with_optim(config, **optim):
    return dataclasses.replace(config, optim=dataclasses.replace(config.optim, **optim))


def logged(run, name):
    with (run / "metrics.csv").open(newline="") as stream:
        return [(int(float(row["step"])), float(row[name])) for row in csv.DictReader(stream) if row[name]]


def test_finite_norms_pass_and_others_are_counted():
    guard = StepGuard(3)
    norms = [1.0, math.nan, math.inf, 0.0, math.inf, 2.0]
    assert [guard.accepts(norm, 7) for norm in norms] == [True, False, False, True, False, True]
    assert guard.state_dict() == {"skipped": 3, "in_a_row": 0}


def test_norms_above_a_limit_are_skipped_too():
    guard = StepGuard(2, largest=5.0)
    assert [guard.accepts(norm, 3) for norm in (5.0, 5.1, 4.9, math.nan)] == [True, False, True, False]
    with pytest.raises(BadStepsError, match=r"2 steps in a row are not finite or above optim\.skip_norm=5\.0 \(optim"):
        guard.accepts(6.0, 3)


def test_the_limit_reaches_the_steps_of_a_run(train_config, tmp_path):
    with pytest.raises(ValueError, match=r"the gradients of 3 steps in a row are not finite or above optim\.skip_norm"):
        fit(with_optim(train_config, skip_norm=1e-6, max_bad_steps=3), tmp_path / "run")


def test_several_in_a_row_are_trouble_and_a_single_one_is_none():
    guard = StepGuard(5)
    seen = [(guard.accepts(norm, 1), guard.in_trouble)[1] for norm in (math.nan, math.nan, 1.0, math.nan)]
    assert seen == [False, True, False, False]


def test_counts_go_on_after_a_resume():
    before, after = StepGuard(3), StepGuard(3)
    for _ in range(2):
        before.accepts(math.nan, 4)
    after.load_state_dict(before.state_dict())
    with pytest.raises(
        BadStepsError, match=r"the gradients of 3 steps in a row are not finite \(optim.max_bad_steps=3"
    ):
        after.accepts(math.nan, 4)


def test_the_end_names_the_checkpoint_to_go_on_from_and_what_to_change(tmp_path):
    guard = StepGuard(1)
    guard.checkpoint = tmp_path / "last.ckpt"
    with pytest.raises(
        ValueError, match=r"step 9 cannot be taken; no checkpoint was written before; begin again with a"
    ):
        guard.accepts(math.inf, 9)
    guard.checkpoint.touch()
    with pytest.raises(
        ValueError,
        match=r"go on from the last good checkpoint, resume=.*last\.ckpt, with a lower learning rate \(optim\.lr or "
        r"optim\.lr_factor\), a longer optim\.warmup_steps, a smaller optim\.clip_norm, or trainer\.precision=fp32",
    ):
        guard.accepts(math.inf, 9)


def parameters():
    found = [nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2, 2))]
    found[0].grad, found[1].grad = torch.tensor([1.0, 2.0, 2.0]), torch.full((2, 2), 2.0)
    return found


def test_gradients_are_scaled_down_to_the_joint_norm_and_small_ones_are_left():
    for limit, scale in ((2.5, 0.5), (5.0, 1.0), (9.0, 1.0), (None, 1.0)):
        trained = parameters()
        assert clip_gradients(trained, limit, None) == pytest.approx(5.0)
        torch.testing.assert_close(trained[0].grad, scale * torch.tensor([1.0, 2.0, 2.0]), rtol=1e-5, atol=0)
        torch.testing.assert_close(trained[1].grad, scale * torch.full((2, 2), 2.0), rtol=1e-5, atol=0)


@pytest.mark.parametrize("limit", [2.5, None])
def test_multiplied_gradients_are_clipped_to_the_same_and_stay_multiplied(limit):
    scaler = GradScaler("cpu", init_scale=1024.0)
    plain, scaled = parameters(), parameters()
    scaler.scale(torch.zeros(()))  # makes its factor
    for one in scaled:
        one.grad *= 1024
    assert clip_gradients(scaled, limit, scaler) == pytest.approx(clip_gradients(plain, limit, None))
    for one, two in zip(plain, scaled, strict=True):
        torch.testing.assert_close(one.grad * 1024, two.grad, rtol=1e-6, atol=0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_norm_of_gradients_with_one_bad_number_is_not_finite(value):
    for limit in (1.0, None):
        trained = parameters()
        trained[1].grad[0, 1] = value
        assert not math.isfinite(clip_gradients(trained, limit, None))


def test_a_skipped_step_lowers_the_scale_and_a_taken_one_does_not():
    (weight,) = trained = [nn.Parameter(torch.ones(3))]
    optimizer, scaler = torch.optim.SGD(trained, lr=0.1), GradScaler("cpu", init_scale=1024.0)
    for value, scale in ((math.inf, 512.0), (1.0, 512.0), (math.nan, 256.0)):
        optimizer.zero_grad()
        scaler.scale((weight * value).sum()).backward()
        if math.isfinite(clip_gradients(trained, 1.0, scaler)):
            scaler.step(optimizer)
            scaler.update()
        else:
            lower_scale(scaler, optimizer)
        assert scaler.get_scale() == scale
    torch.testing.assert_close(weight.detach(), torch.full((3,), 1 - 0.1 / math.sqrt(3)))


V = 13


def trained_with_fp16(kind, steps, poisoned=(), scale=2.0**10, max_bad_steps=10, epochs=1, resume=None):
    """A tiny network after some updates under a scaler, whose products are in fp32 all the same; and its trainer."""
    torch.manual_seed(0)
    model = build_model(ModelConfig(8, 2, 12, 1, 1, dropout=0.0), V, V)
    options = OptimConfig(
        optimizer=OptimizerKind[kind],
        schedule=ScheduleKind.constant,
        lr=0.01,
        warmup_steps=0,
        clip_norm=0.5,
        eps=1e-4,  # biases of keys have gradients of rounding errors alone
        max_bad_steps=max_bad_steps,
    )
    module = TranslationModule(model, options, 8, log_every=1)
    scaled = None
    if scale is not None:
        scaled = MixedPrecision("16-mixed", "cpu", GradScaler("cpu", init_scale=scale, growth_interval=4))
        scaled.autocast_context_manager = lambda: torch.autocast("cpu", enabled=False)
    trainer = Trainer(
        plugins=[scaled] if scaled else None,
        accelerator="cpu",
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Poison(*poisoned, value=math.inf)],
    )
    part = make_batch([[5, 6, 7, 2], [8, 2]], [[6, 2], [9, 10, 11, 2]], SpecialIds(), SpecialIds())
    batches = DataLoader([part] * steps, batch_size=1, collate_fn=tuple)
    trainer.fit(module, batches, ckpt_path=resume, weights_only=True)
    return model, trainer, scaled and scaled.scaler


@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*smaller than the logging interval")
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")
class TestLossScaling:
    @pytest.mark.parametrize("kind", ["adam", "adamw", "adafactor", "muon"])
    def test_training_is_the_same_with_a_factor_in_the_loss_as_without(self, kind):
        # Muon makes directions of which a matrix's gradient has rounding errors alone as long as the others, so its
        # matrices are compared nowhere, and what depends on them only before they have moved
        steps = 1 if kind == "muon" else 3
        plain, _, _ = trained_with_fp16(kind, steps, scale=None)
        scaled, trainer, scaler = trained_with_fp16(kind, steps)
        assert (trainer.global_step, scaler.get_scale()) == (steps, 2.0**10)
        for (name, one), two in zip(plain.named_parameters(), scaled.parameters(), strict=True):
            if kind != "muon" or one.dim() < 2:
                torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6, msg=name)

    @pytest.mark.parametrize("kind", ["adam", "muon"])
    def test_t6_an_overflow_is_no_step_and_halves_the_factor(self, kind):
        _, trainer, scaler = trained_with_fp16(kind, 6, poisoned=(1, 2, 4))
        assert (trainer.global_step, scaler.get_scale()) == (3, 2.0**7)
        assert trainer.lightning_module.guard.skipped == 3
        assert all(parameter.isfinite().all() for parameter in trainer.lightning_module.parameters())

    def test_the_factor_and_its_count_of_good_steps_go_on_after_a_resume(self, tmp_path):
        # a bad step halves the factor, the fourth good one in a row doubles it
        straight, _, expected = trained_with_fp16("adam", 3, poisoned=(0,), epochs=2)
        assert (expected.get_scale(), expected._get_growth_tracker()) == (2.0**10, 1)
        _, trainer, scaler = trained_with_fp16("adam", 3, poisoned=(0,))
        assert (scaler.get_scale(), scaler._get_growth_tracker()) == (2.0**9, 2)
        trainer.save_checkpoint(tmp_path / "half.ckpt")
        resumed, _, scaler = trained_with_fp16("adam", 3, scale=2.0**4, epochs=2, resume=tmp_path / "half.ckpt")
        assert scaler.state_dict() == expected.state_dict()
        assert all(map(torch.equal, straight.parameters(), resumed.parameters()))

    def test_t6_a_factor_that_goes_down_for_ever_ends_the_run(self):
        with pytest.raises(BadStepsError, match="the gradients of 4 steps in a row are not finite"):
            trained_with_fp16("adam", 20, poisoned=range(2, 20), max_bad_steps=4)


def test_t6_a_bad_batch_is_skipped_and_counted_and_training_goes_on(train_config, tmp_path):
    run, poison = tmp_path / "run", Poison(2)
    fit(change(train_config, max_steps=6, log_every=1), run, [MetricsCsv(str(run))], [poison])
    assert poison.taken == [1, 2, 2, 3, 4, 5, 6]  # one step in vain
    losses = logged(run, "train/loss")
    assert [step for step, _ in losses] == [1, 2, 3, 4, 5, 6]
    assert all(math.isfinite(loss) for _, loss in losses)
    assert [skipped for _, skipped in logged(run, "train/skipped_steps")] == [0, 0, 1, 1, 1, 1]
    weights = checkpoint_weights(run / "checkpoints" / "last.ckpt")
    assert all(value.isfinite().all() for value in weights.values())
    assert read_checkpoint(run / "checkpoints" / "last.ckpt")["guard"] == {"skipped": 1, "in_a_row": 0}


def test_t6_nothing_but_bad_steps_end_the_run_and_leave_the_last_good_checkpoint(train_config, tmp_path):
    run = tmp_path / "run"
    config = with_optim(change(train_config, max_steps=20, validate_every=3), max_bad_steps=5)
    with pytest.raises(
        ValueError, match=r"5 steps in a row are not finite .* resume=.*run/checkpoints/last\.ckpt, with"
    ):
        fit(config, run, callbacks=[Poison(*range(4, 50))])
    last = read_checkpoint(run / "checkpoints" / "last.ckpt")
    assert (last["global_step"], last["guard"]["in_a_row"]) == (3, 0)  # not the one of the validation in between
    resumed = dataclasses.replace(change(config, max_steps=5), resume=str(run / "checkpoints" / "last.ckpt"))
    assert fit(resumed, run).steps == 5


def test_weights_that_one_finite_step_has_broken_end_the_run_before_they_are_decoded_with_or_kept(
    train_config, tmp_path
):
    run = tmp_path / "run"
    config = change(train_config, max_steps=4, validate_every=2)
    fit(change(config, max_steps=2), run)
    resume = str(run / "checkpoints" / "last.ckpt")
    config = dataclasses.replace(with_optim(config, lr_factor=1e9), resume=resume)
    with pytest.raises(
        BadStepsError,
        match=r"the validation loss is not a number: the steps up to 3 have made weights that are not finite, or so "
        r"large .* the gradients of 1 after it were not finite; the learning rate is too high; go on from the last "
        r"good checkpoint, resume=.*run/checkpoints/last\.ckpt, with a lower learning rate \(optim\.lr or",
    ):
        fit(config, run)
    assert read_checkpoint(resume)["global_step"] == 2
    assert all(value.isfinite().all() for value in checkpoint_weights(resume).values())


def test_broken_weights_without_a_checkpoint_before_them_have_the_run_begun_again():
    assert "too high; no checkpoint was written before; begin again with a lower" in str(StepGuard(3).broken(7))
