"""seq2seq.nn.dropout: unbiased, as likely as asked for, repeatable, absent in evaluation."""

import pytest
import torch

from seq2seq.nn import dropout
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


@pytest.mark.parametrize("p", [0.0, 0.25])
def test_adding_a_base_is_the_same_as_adding_it_after(p):
    x, base = (torch.randn(7, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    dropout = Dropout(p)
    for mode in (True, False):
        dropout.train(mode)
        torch.manual_seed(6)
        found = dropout(x, base)
        torch.manual_seed(6)
        expected = base + dropout(x)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
        gradients = torch.autograd.grad(found.square().sum(), (x, base))
        for gradient, other in zip(gradients, torch.autograd.grad(expected.square().sum(), (x, base)), strict=True):
            torch.testing.assert_close(gradient, other, rtol=0, atol=1e-13)


def test_a_half_precision_output_is_dropped_and_added_to_a_wider_input():
    x, base = torch.ones(40, 3, dtype=torch.bfloat16, requires_grad=True), torch.zeros(40, 3, requires_grad=True)
    y = Dropout(0.5)(x, base)
    y.sum().backward()
    assert y.dtype is base.grad.dtype is torch.float32
    assert x.grad.dtype is torch.bfloat16
    assert torch.equal(x.grad.float(), y.detach())


def test_the_gradients_are_those_of_finite_differences():
    x, base = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def dropped(*inputs):
        torch.manual_seed(7)
        return Dropout(0.3)(*inputs)

    assert torch.autograd.gradcheck(dropped, (x,))
    assert torch.autograd.gradcheck(dropped, (x, base))


def test_the_zeros_do_not_depend_on_the_number_of_threads():
    x, threads = torch.ones(70_001), torch.get_num_threads()
    found = []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            torch.manual_seed(8)
            found.append(Dropout(0.1)(x))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*found)


def test_what_comes_scaled_is_only_dropped_out_of():
    layer, x, base = Dropout(0.25).train(), torch.randn(9, 11, requires_grad=True), torch.randn(9, 11)
    scale = layer.ahead(x)
    assert scale == 256 / 192
    for added in (None, base):
        torch.manual_seed(8)
        expected = layer(x, added)
        torch.manual_seed(8)
        found = layer(x * scale, added, scaled=True)
        torch.testing.assert_close(found, expected)
        pair = [torch.autograd.grad(out.square().sum(), x)[0] for out in (found, expected)]
        torch.testing.assert_close(*pair)


def test_nothing_is_scaled_ahead_where_nothing_is_dropped_or_gradients_are_torchs():
    x = torch.randn(2, 3)
    assert Dropout(0.25).eval().ahead(x) == 1.0
    assert Dropout(0.0).train().ahead(x) == 1.0
    with torch.autocast("cpu", torch.bfloat16):
        assert Dropout(0.25).train().ahead(x) == 1.0


def test_what_comes_scaled_is_not_scaled_twice_where_torch_draws(monkeypatch):
    layer, x = Dropout(0.25).train(), torch.ones(400)
    scale = layer.ahead(x)
    monkeypatch.setattr(dropout, "draws_bytes", lambda x: False)
    torch.manual_seed(8)
    expected = layer(x)
    torch.manual_seed(8)
    torch.testing.assert_close(layer(x * scale, scaled=True), expected)
    assert layer.ahead(x) == 1.0
