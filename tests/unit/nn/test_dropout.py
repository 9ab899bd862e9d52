"""seq2seq.nn.dropout: unbiased, as likely as asked for, repeatable, absent in evaluation."""

import pytest
import torch

from seq2seq.nn.dropout import Dropout

PS = [0.004, 0.1, 0.3, 0.5, 0.9, 0.999]


@pytest.mark.parametrize("p", PS)
def test_the_share_of_zeros_is_p_rounded_to_256ths(p):
    torch.manual_seed(1)
    zeros = (Dropout(p).train()(torch.ones(1_000_003)) == 0).double().mean().item()
    rounded = min(255, max(1, round(p * 256))) / 256
    deviation = (rounded * (1 - rounded) / 1_000_003) ** 0.5
    assert abs(rounded - p) <= 1 / 256
    assert zeros == pytest.approx(rounded, abs=5 * deviation)


@pytest.mark.parametrize("p", PS)
def test_the_expected_value_stays(p):
    torch.manual_seed(2)
    kept = 1 - min(255, max(1, round(p * 256))) / 256
    y = Dropout(p).train()(torch.full((1_000_003,), 3.0))
    assert torch.unique(y).tolist() == pytest.approx([0.0, 3.0 / kept])
    assert y.double().mean().item() == pytest.approx(3.0, abs=5 * 3.0 * ((1 - kept) / kept / 1_000_003) ** 0.5)


def test_the_same_seed_gives_the_same_zeros_and_another_seed_others():
    x, dropout = torch.ones(5, 7, 3), Dropout(0.5).train()
    torch.manual_seed(4)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(4)
    again = dropout(x)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_a_restored_random_state_gives_the_same_zeros():
    x, dropout = torch.ones(50), Dropout(0.5).train()
    state = torch.get_rng_state()
    first = dropout(x)
    torch.set_rng_state(state)
    assert torch.equal(dropout(x), first)


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_evaluation_and_p_of_zero_give_the_very_input(p):
    x = torch.randn(4, 3)
    assert Dropout(p).eval()(x) is x
    assert Dropout(0.0).train()(x) is x


def test_the_gradient_is_the_mask_that_the_output_went_through():
    x = torch.randn(40, 30, requires_grad=True)
    y = Dropout(0.25).train()(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad * x.detach(), y.detach())
    assert torch.unique(x.grad).tolist() == pytest.approx([0.0, 1 / 0.75])


def test_neighbours_are_dropped_independently():
    torch.manual_seed(5)
    dropped = (Dropout(0.5).train()(torch.ones(800_000)) == 0).double() - 0.5
    for distance in (1, 2, 3, 4, 7, 8, 9, 16, 64):  # eight elements share one draw of the generator
        correlation = (dropped[:-distance] * dropped[distance:]).mean().item() * 4
        assert abs(correlation) < 5 / 800_000**0.5


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(0, 3), (1,), (3, 5, 7)])
def test_shape_and_precision_stay(dtype, shape):
    y = Dropout(0.5).train()(torch.ones(shape, dtype=dtype))
    assert y.shape == shape
    assert y.dtype is dtype


def test_an_input_that_is_not_contiguous_is_dropped_like_any_other():
    x = torch.arange(1.0, 13.0).reshape(3, 4).t()
    y = Dropout(0.5).train()(x)
    torch.testing.assert_close(y[y != 0], 2 * x[y != 0])


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, float("nan")])
def test_a_p_that_is_no_probability_below_one_is_refused(p):
    with pytest.raises(ValueError, match=rf"dropout={p} is not a probability below 1; choose 0 <= dropout < 1"):
        Dropout(p)


def test_the_printed_model_shows_p():
    assert "p=0.25" in repr(Dropout(0.25))
