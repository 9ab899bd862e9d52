"""All generators of random numbers go on where they were."""

import logging
import random

import numpy as np
import pytest
import torch

from seq2seq.training.random_state import random_state, restore_of_rank, restore_random_state


@pytest.fixture(autouse=True)
def _generators_as_before():
    before = random_state()
    yield
    restore_random_state(before)


def draw():
    from_python = [random.random(), random.gauss(0, 1)]
    from_numpy = [float(np.random.random()), np.random.standard_normal(3).tolist()]
    return [*from_python, *from_numpy, torch.rand(2).tolist(), torch.randn(5).tolist()]


def test_every_generator_goes_on_where_it_was_after_a_weights_only_load(tmp_path):
    draw()  # an odd number of normal draws: the second one of a pair is waiting in NumPy and in Python
    torch.save(random_state(), tmp_path / "x.pt")
    first, second = draw(), draw()
    assert first != second
    restore_random_state(torch.load(tmp_path / "x.pt", weights_only=True))
    assert draw() == first
    assert draw() == second


@pytest.mark.parametrize("name", ["python", "numpy", "torch"])
def test_each_generator_is_in_the_state(name):
    state = random_state()
    first = draw()
    restore_random_state({**state, name: random_state()[name]})
    assert draw() != first


def test_the_state_of_before_has_torch_alone():
    state = random_state()
    first = torch.rand(3).tolist()
    restore_random_state({"torch": state["torch"]})
    assert torch.rand(3).tolist() == first


def test_a_rank_goes_on_with_its_own_state():
    states = []
    for seed in (3, 4):
        torch.manual_seed(seed)
        states.append(random_state())
    assert restore_of_rank(states, 1, 2)
    first = torch.rand(3)
    torch.manual_seed(4)
    assert torch.equal(first, torch.rand(3))


def test_another_number_of_ranks_is_warned_about_and_each_draws_its_own_numbers(caplog):
    torch.manual_seed(3)
    states = [random_state()]
    drawn = []
    with caplog.at_level(logging.WARNING):
        for rank in (0, 1, 0):
            assert not restore_of_rank(states, rank, 2)
            drawn.append(draw())
    assert drawn[0] == drawn[2]
    assert all(one != two for one, two in zip(drawn[0], drawn[1], strict=True))
    assert caplog.text.count("the checkpoint is of 1 processes and this run has 2") == 2
    assert "bit for bit; for that, resume with 1" in caplog.text


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_goes_on_where_it_was():
    torch.rand(2, device="cuda")
    state = random_state()
    first = torch.rand(3, device="cuda")
    restore_random_state(state)
    assert torch.equal(torch.rand(3, device="cuda"), first)
