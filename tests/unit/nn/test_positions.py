"""seq2seq.nn.positions: the sinusoid's formula, its precision, and that it has no longest length."""

import copy
import math

import pytest
import torch

from seq2seq.nn.positions import SinusoidalPositions, sinusoids

D = 8


def test_every_element_is_the_formula_of_the_paper():
    table = sinusoids(7, D)
    assert table.dtype is torch.float64
    assert table.shape == (7, D)
    for position in range(7):
        for i in range(D // 2):
            angle = position / 10000 ** (2 * i / D)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-12)


def test_a_position_k_steps_later_is_a_rotation_that_does_not_depend_on_where():
    table, k = sinusoids(40, D), 6
    for i in range(D // 2):
        frequency = 10000 ** (-2 * i / D)
        sin, cos = math.sin(k * frequency), math.cos(k * frequency)
        rotated = torch.stack(
            [
                table[:-k, 2 * i] * cos + table[:-k, 2 * i + 1] * sin,
                table[:-k, 2 * i + 1] * cos - table[:-k, 2 * i] * sin,
            ],
            dim=1,
        )
        torch.testing.assert_close(rotated, table[k:, 2 * i : 2 * i + 2], atol=1e-12, rtol=0)


def test_no_two_positions_look_alike_over_thousands():
    table = sinusoids(3000, D)
    distances = torch.cdist(table, table) + torch.eye(3000) * 9
    assert distances.min() > 1e-4


def test_positions_start_where_they_are_told_to():
    positions, x = SinusoidalPositions(D).double(), torch.randn(2, 3, D, dtype=torch.float64)
    torch.testing.assert_close(positions(x, start=4) - x, sinusoids(7, D)[4:].expand(2, 3, D), atol=1e-12, rtol=0)


def test_there_is_no_longest_length():
    positions, x = SinusoidalPositions(D).double(), torch.zeros(1, 3, D, dtype=torch.float64)
    torch.testing.assert_close(positions(x, start=4999)[0], sinusoids(5002, D)[4999:], atol=1e-12, rtol=0)
    long = torch.zeros(1, 5000, D, dtype=torch.float64)
    torch.testing.assert_close(positions(long)[0], sinusoids(5000, D), atol=1e-12, rtol=0)


@pytest.mark.parametrize("through", [torch.float32, torch.bfloat16])
def test_a_model_moved_to_float64_gets_sinusoids_in_float64(through):
    positions = SinusoidalPositions(D).to(through).double()
    x = torch.zeros(1, 9, D, dtype=torch.float64)
    assert torch.equal(positions(x)[0], sinusoids(9, D))


def test_what_a_position_gets_does_not_depend_on_what_was_asked_before():
    fresh, grown = SinusoidalPositions(D).double(), SinusoidalPositions(D).double()
    x = torch.zeros(1, 2, D, dtype=torch.float64)
    grown(x, start=1000)
    assert torch.equal(fresh(x, start=5), grown(x, start=5))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_sum_keeps_the_precision_of_its_input(dtype):
    assert SinusoidalPositions(D)(torch.zeros(1, 2, D, dtype=dtype)).dtype is dtype


def test_it_has_nothing_to_train_and_nothing_to_save():
    positions = SinusoidalPositions(D)
    assert list(positions.parameters()) == []
    assert positions.state_dict() == {}


def test_a_table_grown_in_inference_mode_serves_training_and_copies():
    positions = SinusoidalPositions(D)
    with torch.inference_mode():
        positions(torch.zeros(1, 1, D), start=999)
    x = torch.zeros(1, 3, D, requires_grad=True)
    copy.deepcopy(positions)(x, start=500).sum().backward()
    assert torch.equal(x.grad, torch.ones(1, 3, D))


def test_it_works_after_being_built_without_memory():
    with torch.device("meta"):
        positions = SinusoidalPositions(D)
    positions.to_empty(device="cpu")
    torch.testing.assert_close(positions(torch.zeros(1, 3, D))[0].double(), sinusoids(3, D), atol=1e-6, rtol=0)
