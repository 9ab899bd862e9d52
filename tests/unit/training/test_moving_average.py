"""The moving average of the weights against one computed by hand, in whole runs and alone."""

import copy
import dataclasses
import math

import pytest
import torch
from pytorch_lightning import Callback

from seq2seq.bundle import load_bundle
from seq2seq.config import Direction, FinalWeights, InitConfig, OptimConfig, Precision, ScheduleKind, Tying
from seq2seq.models import build_model
from seq2seq.training.averaging import average_checkpoints, checkpoint_weights, read_checkpoint
from seq2seq.training.fit import fit
from seq2seq.training.moving_average import HELD_BACK, MovingAverage, weights_to_train
from seq2seq.training.objectives import TranslationModule

pytestmark = pytest.mark.whole_runs

DECAY = 0.6  # reached at the fourteenth step only: (1 + 13) / (10 + 13) > 0.6


def change(config, **trainer):
    return dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, **trainer))


def with_average(config, decay=DECAY, **trainer):
    optim = dataclasses.replace(config.optim, ema_decay=decay, warmup_steps=2)
    return change(dataclasses.replace(config, optim=optim), num_samples=0, **trainer)


class Watch(Callback):
    """Notes the weights at the start and after every step, and those that validation computes with."""

    def __init__(self):
        self.steps, self.validated = [], []

    def weights(self, pl_module):
        return {name: value.clone() for name, value in pl_module.model.state_dict().items()}

    def on_train_start(self, trainer, pl_module):
        self.steps.append(self.weights(pl_module))

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.steps.append(self.weights(pl_module))

    def on_validation_epoch_end(self, trainer, pl_module):
        self.validated.append(self.weights(pl_module))


def by_hand(steps, decay=DECAY):
    """The average after each of the steps, of which the first is what training began with; in float64."""
    average = {name: value.double() for name, value in steps[0].items()}
    for number, weights in enumerate(steps[1:]):
        d = min(decay, (1 + number) / (10 + number))
        average = {name: d * value + (1 - d) * weights[name].double() for name, value in average.items()}
        yield average


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name].double(), value.double(), rtol=1e-5, atol=1e-6, msg=name)


def same(one, two):
    return all(torch.equal(value, two[name]) for name, value in one.items())


@pytest.fixture
def module(families):
    torch.manual_seed(0)
    model = build_model(families("original", num_decoder_layers=1), 19, 19)
    return TranslationModule(model, OptimConfig(ema_decay=0.25), 24)


def wander(module, seed):
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draw).to(parameter.dtype))


def test_the_average_is_that_of_the_formula_with_a_smaller_decay_at_the_beginning(module):
    average = MovingAverage(0.25)  # reached at the third step
    average.start(module)
    expected = module.model.output.detach().double()
    for number, d in enumerate([1 / 10, 2 / 11, 3 / 12, 0.25, 0.25]):
        wander(module, number)
        average.update(module)
        expected = d * expected + (1 - d) * module.model.output.detach().double()
    torch.testing.assert_close(average.averages["model.output"].double(), expected, rtol=1e-6, atol=1e-6)


def test_half_precision_weights_have_an_average_that_small_changes_reach(module):
    module.to(torch.bfloat16)
    average = MovingAverage(0.999)
    average.start(module)
    average.num_steps = 10**6
    assert {value.dtype for value in average.averages.values()} == {torch.float32}
    with torch.no_grad():
        module.model.output.fill_(1.0)
    average.averages["model.output"].fill_(0.5)
    for _ in range(1000):
        average.update(module)
    expected = 1 - 0.5 * 0.999**1000
    assert average.averages["model.output"].mean().item() == pytest.approx(expected, rel=1e-4)
    average.show(module)
    assert module.model.output.dtype == torch.bfloat16
    torch.testing.assert_close(module.model.output.float().mean().item(), expected, rtol=4e-3, atol=0)


def test_what_is_shown_is_the_average_and_what_is_put_back_the_weights_bit_for_bit(module):
    average = MovingAverage(0.25)
    average.start(module)
    first = copy.deepcopy(module.model.state_dict())
    wander(module, 1)
    weights, places = copy.deepcopy(module.model.state_dict()), [one.data_ptr() for one in module.parameters()]
    average.show(module)
    assert same(module.model.state_dict(), first)
    average.hide(module)
    assert same(module.model.state_dict(), weights)
    assert [one.data_ptr() for one in module.parameters()] == places


@pytest.mark.parametrize("tying", Tying)
def test_t9_tied_matrices_are_averaged_once_and_stay_one(families, tying):
    torch.manual_seed(0)
    module = TranslationModule(build_model(families("original", tying=tying), 19, 19), OptimConfig(), 24)
    average = MovingAverage(0.25)
    average.start(module)
    assert sum(value.numel() for value in average.averages.values()) == module.model.num_parameters()
    wander(module, 1)
    average.update(module)
    average.show(module)
    tied = tying is not Tying.none
    assert (module.model.output is module.model.decoder.embedding.rows.weight) == tied
    checkpoint = {"state_dict": module.state_dict()}
    average.save(module, checkpoint)
    tables = [checkpoint["state_dict"][f"model.{name}"] for name in ("output", "decoder.embedding.rows.weight")]
    assert torch.equal(*tables) == tied


def test_frozen_weights_are_neither_averaged_nor_changed(module):
    module.model.encoder.layers.requires_grad_(False)
    average = MovingAverage(0.25)
    average.start(module)
    assert not any("encoder.layers" in name for name in average.averages)
    before = copy.deepcopy(module.model.encoder.layers.state_dict())
    average.update(module)
    checkpoint = {"state_dict": module.state_dict(), "optimizer_states": [{}]}
    average.save(module, checkpoint)
    assert checkpoint["state_dict"].keys() == module.state_dict().keys()
    weights_to_train(module, checkpoint)
    assert same(before, {name: checkpoint["state_dict"][f"model.encoder.layers.{name}"] for name in before})


def test_what_a_run_validates_keeps_and_ends_with_is_the_average_while_it_trains_the_weights(train_config, tmp_path):
    config, plain = with_average(train_config, validate_every=4, max_steps=8, average_last=2), Watch()
    watch, run = Watch(), tmp_path / "run"
    fit(config, run, callbacks=[watch])
    optim = dataclasses.replace(config.optim, ema_decay=None)
    fit(dataclasses.replace(config, optim=optim), tmp_path / "plain", callbacks=[plain])
    assert all(same(one, two) for one, two in zip(watch.steps, plain.steps, strict=True))  # it is only looked at
    averages = list(by_hand(watch.steps))
    for seen, step in zip(watch.validated, (4, 8), strict=True):
        assert_close(seen, averages[step - 1])
        assert same(seen, checkpoint_weights(run / "checkpoints" / f"recent_step_{step:06d}.ckpt"))
        assert not same(seen, watch.steps[step])
        assert same(plain.validated[step // 4 - 1], watch.steps[step])
    last = read_checkpoint(run / "checkpoints" / "last.ckpt")
    assert same(checkpoint_weights(run / "checkpoints" / "last.ckpt"), watch.validated[-1])
    assert same(last[HELD_BACK], {f"model.{name}": value for name, value in watch.steps[-1].items()})
    assert last["moving_average"]["num_steps"] == 8
    (best,) = load_bundle(run / "bundle").provenance["checkpoints"]
    assert best.startswith("best_step_")
    assert same(load_bundle(run / "bundle").model.state_dict(), watch.validated[0 if "000004" in best else 1])
    assert HELD_BACK not in read_checkpoint(run / "checkpoints" / best)


@pytest.mark.parametrize("final", [FinalWeights.last, FinalWeights.average])
def test_the_bundle_of_the_last_weights_or_of_several_checkpoints_is_of_averages(train_config, tmp_path, final):
    watch, run = Watch(), tmp_path / "run"
    fit(with_average(train_config, final_weights=final, max_steps=4, validate_every=2), run, callbacks=[watch])
    found = load_bundle(run / "bundle").model.state_dict()
    if final is FinalWeights.last:
        assert same(found, watch.validated[-1])
    else:
        assert_close(found, {name: (one + watch.validated[1][name]) / 2 for name, one in watch.validated[0].items()})
    files = sorted((run / "checkpoints").glob("recent_*"))
    assert_close(
        average_checkpoints(files), {n: (v + watch.validated[1][n]) / 2 for n, v in watch.validated[0].items()}
    )


def test_a_resumed_run_goes_on_with_both_bit_for_bit(train_config, tmp_path):
    config = with_average(train_config, validate_every=3, max_steps=7)
    straight = Watch()
    fit(config, tmp_path / "a", callbacks=[straight])
    fit(change(config, max_steps=4), tmp_path / "b")
    resumed = Watch()
    last = str(tmp_path / "b" / "checkpoints" / "last.ckpt")
    fit(dataclasses.replace(config, resume=last), tmp_path / "b", callbacks=[resumed])
    assert all(same(one, two) for one, two in zip(straight.steps[4:], resumed.steps, strict=True))
    one, two = (read_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt") for name in "ab")
    assert same(one["state_dict"], two["state_dict"])
    assert same(one[HELD_BACK], two[HELD_BACK])
    assert same(one["moving_average"]["averages"], two["moving_average"]["averages"])
    assert one["moving_average"]["num_steps"] == two["moving_average"]["num_steps"] == 7


def test_an_interrupt_in_the_middle_of_a_validation_keeps_the_two_apart(train_config, tmp_path):
    class Breaks(Watch):
        def on_validation_epoch_end(self, trainer, pl_module):
            super().on_validation_epoch_end(trainer, pl_module)
            raise RuntimeError("power cut")

    watch, run = Breaks(), tmp_path / "run"
    with pytest.raises(RuntimeError, match="power cut"):
        fit(with_average(train_config), run, callbacks=[watch])
    last = read_checkpoint(run / "checkpoints" / "last.ckpt")
    assert same(checkpoint_weights(run / "checkpoints" / "last.ckpt"), watch.validated[0])
    assert same(last[HELD_BACK], {f"model.{name}": value for name, value in watch.steps[-1].items()})


def test_a_run_can_begin_to_average_or_stop_it_when_it_is_resumed(train_config, tmp_path):
    averaged = with_average(train_config, max_steps=3)
    plain = dataclasses.replace(averaged, optim=dataclasses.replace(averaged.optim, ema_decay=None))
    watch = Watch()
    for name, config in (("a", plain), ("b", averaged)):
        fit(config, tmp_path / name, callbacks=[watch])
    ends = watch.steps[3], watch.steps[-1]
    for name, config, end in (("a", averaged, ends[0]), ("b", plain, ends[1])):
        last = str(tmp_path / name / "checkpoints" / "last.ckpt")
        resumed = Watch()
        fit(dataclasses.replace(change(config, max_steps=4), resume=last), tmp_path / name, callbacks=[resumed])
        assert same(resumed.steps[0], end)
    assert "moving_average" in read_checkpoint(tmp_path / "a" / "checkpoints" / "last.ckpt")
    assert "moving_average" not in read_checkpoint(tmp_path / "b" / "checkpoints" / "last.ckpt")


def test_a_fine_tuned_run_in_bfloat16_with_a_frozen_part_averages_what_it_trains(train_config, tmp_path):
    first = fit(change(train_config, max_steps=1, validate_every=1, num_samples=0), tmp_path / "first")
    config = with_average(train_config, max_steps=2, validate_every=2, precision=Precision.bf16_true)
    config = dataclasses.replace(config, init=InitConfig(from_=str(first.bundle), freeze_encoder=True))
    watch, run = Watch(), tmp_path / "run"
    fit(config, run, callbacks=[watch])
    *_, expected = by_hand(watch.steps)
    for name, value in watch.validated[0].items():
        torch.testing.assert_close(value.double(), expected[name], rtol=8e-3, atol=1e-3)
    bundle = load_bundle(run / "bundle").model.state_dict()
    encoder = [name for name in bundle if name.startswith("encoder.layers")]
    theirs = load_bundle(first.bundle).model.state_dict()
    assert all(torch.equal(bundle[name], theirs[name].bfloat16().float()) for name in encoder)


def test_a_skipped_step_is_not_averaged(train_config, tmp_path):
    class Poison(Callback):
        def on_train_start(self, trainer, pl_module):
            honest, number = pl_module.training_loss, iter(range(99))

            def loss(batch):
                losses = honest(batch)
                return dataclasses.replace(losses, loss=losses.loss * (math.nan if next(number) == 1 else 1.0))

            pl_module.training_loss = loss

    fit(with_average(train_config, max_steps=3, validate_every=4), tmp_path / "run", callbacks=[Poison()])
    average = read_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")["moving_average"]
    assert average["num_steps"] == 3
    assert all(value.isfinite().all() for value in average["averages"].values())


def test_patience_counts_validations_of_the_average_from_the_first_on_without_warmup(train_config, tmp_path):
    class Worse(Callback):
        value = 10.0

        def on_validation_epoch_end(self, trainer, pl_module):
            self.value -= 1
            pl_module.log("valid/fake", self.value)

    watched = {"monitor": "valid/fake", "monitor_direction": Direction.max}
    config = with_average(train_config, **watched, patience=2, validate_every=1, max_steps=50)
    optim = dataclasses.replace(config.optim, warmup_steps=0, lr=1e-3, schedule=ScheduleKind.inverse_sqrt)
    assert fit(dataclasses.replace(config, optim=optim), tmp_path / "run", callbacks=[Worse()]).steps == 3
