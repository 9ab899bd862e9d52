import pytest
import torch

from seq2seq.models.twins import in_float64, uncached

SRC = torch.tensor([[4, 7, 9, 5, 2], [6, 2, 0, 0, 0]])
VALID = torch.tensor([[True] * 5, [True, True, False, False, False]])


def test_steps_without_a_cache_give_the_logits_of_one_forward_pass_whatever_the_order_of_rows(family_model):
    twin = uncached(family_model)
    state = twin.start(SRC, VALID)
    logits, state = twin.step(torch.tensor([[1], [1]]), state)
    rows = torch.tensor([1, 0, 1])
    state = state.select(rows, torch.tensor([0, 1]))
    logits, state = twin.step(torch.tensor([[8], [4], [5]]), state)
    logits, state = twin.step(torch.tensor([[3], [7], [6]]), state)
    target = torch.tensor([[1, 8, 3], [1, 4, 7], [1, 5, 6]])
    expected = family_model(SRC[rows], VALID[rows], target)[:, -1]
    torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-9)


def test_the_twin_has_the_same_weights_not_copies_and_the_same_mode(families, scrambled):
    for name in ("original", "gpt2"):
        model = scrambled(families(name))
        twin = uncached(model)
        assert not twin.training
        assert {id(one) for one in twin.parameters()} == {id(one) for one in model.parameters()}


def test_a_model_in_float64_has_no_twin_that_is_more_precise_and_the_twin_is_a_copy(families, scrambled):
    double = scrambled(families("original"))
    assert in_float64(double) is None
    single = double.float()
    twin = in_float64(single)
    assert twin is not None
    assert (twin.output.dtype, single.output.dtype) == (torch.float64, torch.float32)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(twin.output.float(), single.output * 2)
