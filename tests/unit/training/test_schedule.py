"""The paper's learning-rate curve."""

import pytest

from seq2seq.training.schedule import noam_lr


def test_the_curve_is_equation_3_of_the_paper():
    for step in (1, 7, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert noam_lr(step, d_model=512, warmup_steps=4000) == pytest.approx(expected, rel=1e-12)


def test_the_peak_is_at_the_end_of_the_warmup():
    rates = [noam_lr(step, d_model=64, warmup_steps=10) for step in range(1, 40)]
    assert rates.index(max(rates)) + 1 == 10
    assert rates[0] == pytest.approx(max(rates) / 10)


def test_the_factor_scales_the_whole_curve():
    assert noam_lr(3, d_model=64, warmup_steps=10, factor=0.5) == noam_lr(3, d_model=64, warmup_steps=10) / 2
