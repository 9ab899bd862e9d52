import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.config import PenaltyForm
from seq2seq.search import LengthPenalty


def test_the_gnmt_divisor_is_equation_14() -> None:
    assert LengthPenalty(PenaltyForm.gnmt, 0.6)(13) == pytest.approx((5 + 13) ** 0.6 / (5 + 1) ** 0.6)


def test_the_power_divisor_is_the_length_to_the_exponent() -> None:
    assert LengthPenalty(PenaltyForm.power, 2.0)(7) == 49.0


def test_no_penalty_divides_by_one_whatever_the_exponent() -> None:
    assert LengthPenalty(PenaltyForm.none, 3.0)(7) == 1.0


def best_possible(penalty: LengthPenalty, log_prob: float, first: int, last: int) -> float:
    return float(penalty.best_possible(np.array([[log_prob]]), np.array([[first]]), np.array([[last]]))[0, 0])


@given(
    penalty=st.builds(LengthPenalty, st.sampled_from(PenaltyForm), st.floats(-3, 3)),
    log_prob=st.floats(-100, 0),
    drop=st.floats(0, 50),
    first=st.integers(1, 20),
    more=st.integers(0, 20),
    data=st.data(),
)
def test_no_completion_scores_above_the_best_possible(
    penalty: LengthPenalty, log_prob: float, drop: float, first: int, more: int, data: st.DataObject
) -> None:
    length = data.draw(st.integers(first, first + more))
    bound = best_possible(penalty, log_prob, first, first + more)
    assert (log_prob - drop) / penalty(length) <= bound + 1e-12 * abs(bound)


@pytest.mark.parametrize("exponent", [-1.0, 0.6])
def test_the_best_possible_is_reached_by_a_free_completion(exponent: float) -> None:
    penalty = LengthPenalty(PenaltyForm.power, exponent)
    reached = max(-3.0 / penalty(length) for length in range(4, 10))
    assert best_possible(penalty, -3.0, 4, 9) == reached
