"""Learning-rate curves, by hand."""

import dataclasses
import math

import pytest

from seq2seq.config import OptimConfig, ScheduleKind
from seq2seq.training.schedule import last_step, learning_rate, noam_lr, peak_rate

D = 64


def curve(schedule, warmup=10, lr: float | None = 0.5, total: int | None = 50, **optim):
    options = OptimConfig(schedule=ScheduleKind[schedule], warmup_steps=warmup, lr=lr, **optim)
    return lambda step: learning_rate(step, options, D, total)


def test_the_curve_is_equation_3_of_the_paper():
    for step in (1, 7, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert noam_lr(step, d_model=512, warmup_steps=4000) == pytest.approx(expected, rel=1e-12)


def test_the_peak_is_at_the_end_of_the_warmup():
    rates = [noam_lr(step, d_model=D, warmup_steps=10) for step in range(1, 40)]
    assert rates.index(max(rates)) + 1 == 10
    assert rates[0] == pytest.approx(max(rates) / 10)


def test_the_factor_scales_the_whole_curve():
    assert noam_lr(3, d_model=D, warmup_steps=10, factor=0.5) == noam_lr(3, d_model=D, warmup_steps=10) / 2


@pytest.mark.parametrize("schedule", [kind.name for kind in ScheduleKind])
def test_every_schedule_rises_linearly_to_its_peak_at_the_end_of_the_warmup(schedule):
    rate = curve(schedule, lr=None if schedule == "noam" else 0.5)
    peak = rate(10)
    assert [rate(step) for step in (1, 3, 7)] == pytest.approx([peak / 10, peak * 3 / 10, peak * 7 / 10], rel=1e-12)
    assert peak == pytest.approx(64**-0.5 * 10**-0.5 if schedule == "noam" else 0.5, rel=1e-12)
    assert max(rate(step) for step in range(1, 60)) == peak


@pytest.mark.parametrize("schedule", [kind.name for kind in ScheduleKind])
def test_without_a_rate_of_its_own_a_schedule_has_the_peak_of_noam(schedule):
    rate = curve(schedule, lr=None, lr_factor=0.3)
    assert rate(10) == pytest.approx(0.3 * 64**-0.5 * 10**-0.5, rel=1e-12)
    assert peak_rate(OptimConfig(warmup_steps=10, lr_factor=0.3), D) == pytest.approx(rate(10), rel=1e-12)


@pytest.mark.parametrize("schedule", [kind.name for kind in ScheduleKind if kind is not ScheduleKind.noam])
def test_without_warmup_the_first_step_uses_the_peak(schedule):
    assert curve(schedule, warmup=0)(1) == 0.5


def test_inverse_sqrt_is_noam_with_its_peak_given():
    given, noam = curve("inverse_sqrt", lr=64**-0.5 * 10**-0.5), curve("noam", lr=None)
    for step in (1, 5, 10, 11, 40, 5000):
        assert given(step) == pytest.approx(noam(step), rel=1e-12)
    assert curve("inverse_sqrt", warmup=0)(25) == pytest.approx(0.1)


def test_linear_goes_down_in_equal_steps_to_the_last_one_and_stays():
    rate = curve("linear", min_lr_ratio=0.2)
    assert [rate(step) for step in (10, 20, 30, 49, 50)] == pytest.approx([0.5, 0.4, 0.3, 0.11, 0.1], rel=1e-12)
    assert rate(51) == rate(10_000) == rate(50) == 0.5 * 0.2
    assert curve("linear")(50) == 0.0


def test_cosine_is_half_a_wave():
    rate = curve("cosine", min_lr_ratio=0.1)
    for step in (11, 20, 37, 49):
        expected = 0.5 * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (step - 10) / 40)))
        assert rate(step) == pytest.approx(expected, rel=1e-12)
    assert rate(30) == pytest.approx(0.5 * 0.55, rel=1e-12)
    assert rate(50) == rate(99) == 0.05


def test_warmup_stable_decay_is_flat_up_to_its_last_part():
    rate = curve("warmup_stable_decay", decay_share=0.2)
    assert {rate(step) for step in range(10, 41)} == {0.5}
    assert [rate(step) for step in (41, 45, 49, 50, 70)] == pytest.approx([0.45, 0.25, 0.05, 0.0, 0.0], abs=1e-12)
    whole = curve("warmup_stable_decay", decay_share=1.0)  # there is no decay in the warm-up
    assert [whole(step) for step in (5, 10, 30)] == pytest.approx([0.25, 0.5, 0.25], rel=1e-12)


def test_constant_never_goes_down():
    rate = curve("constant", total=None)
    assert {rate(step) for step in (10, 11, 1_000_000)} == {0.5}


def test_a_run_that_ends_in_its_warmup_has_no_decay_but_for_what_lies_beyond():
    rate = curve("cosine", warmup=10, total=6)
    assert [rate(6), rate(10), rate(11)] == pytest.approx([0.3, 0.5, 0.0])


@pytest.mark.parametrize("schedule", ["linear", "cosine", "warmup_stable_decay"])
def test_a_decay_without_an_end_is_refused(schedule):
    with pytest.raises(
        ValueError,
        match=f"optim.schedule={schedule} needs to know the last step; give optim.total_steps or trainer.max",
    ):
        curve(schedule, total=None)(11)


def test_a_decay_ends_where_the_first_of_the_limits_does_unless_it_is_told(train_config):
    def limited(total=None, **limits):
        trainer = dataclasses.replace(train_config.trainer, max_steps=None, **limits)
        options = {"schedule": ScheduleKind.linear, "total_steps": total} if total else {}
        optim = dataclasses.replace(train_config.optim, **options)
        return last_step(dataclasses.replace(train_config, trainer=trainer, optim=optim), 30)

    assert limited(max_epochs=4) == 120
    assert limited(max_minutes=3.0) is None
    assert limited(max_epochs=4, total=700) == 700
    both = dataclasses.replace(train_config.trainer, max_epochs=4, max_steps=99)
    assert last_step(dataclasses.replace(train_config, trainer=both), 30) == 99
