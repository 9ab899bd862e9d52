"""seq2seq.nn.cpu_linear against torch's linear layer and its gradients."""

import pytest
import torch
from torch import nn

from seq2seq.nn.cpu_linear import by_hand, column_sums, linear, product


def layer(bias=True, dtype=torch.float64):
    torch.manual_seed(1)
    return nn.Linear(5, 3, bias=bias).to(dtype).train()


@pytest.mark.parametrize("scale", [1.0, 1.25])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(4, 5), (2, 3, 5), (0, 3, 5), (5,)])
def test_outputs_and_gradients_are_those_of_the_layer_times_the_scale(shape, bias, scale):
    module = layer(bias)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    found, expected = linear(x, module, scale), module(x) * scale
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    grad, inputs = torch.randn_like(expected), [x, *module.parameters()]
    pairs = zip(torch.autograd.grad(found, inputs, grad), torch.autograd.grad(expected, inputs, grad), strict=True)
    for gradient, other in pairs:
        torch.testing.assert_close(gradient, other, rtol=0, atol=1e-12)


def test_its_gradients_agree_with_finite_differences():
    module, x = layer(), torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: linear(x, module, 1.25), (x, *module.parameters()))


@pytest.mark.parametrize("frozen", ["x", "weight", "bias"])
def test_what_is_frozen_gets_no_gradient_and_the_rest_the_same(frozen):
    module, x = layer(), torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    parts = {"x": x, "weight": module.weight, "bias": module.bias}
    linear(x, module).square().sum().backward()
    whole = {name: part.grad.clone() for name, part in parts.items()}
    for name, part in parts.items():
        part.grad = None
        part.requires_grad_(name != frozen)
    linear(x, module).square().sum().backward()
    for name, part in parts.items():
        assert (part.grad is None) == (name == frozen)
        assert part.grad is None or torch.equal(part.grad, whole[name])


def test_an_input_that_is_not_contiguous_is_as_any_other():
    module, x = layer(), torch.randn(5, 4, 2, dtype=torch.float64).transpose(0, 2)
    torch.testing.assert_close(linear(x, module), module(x), rtol=0, atol=1e-12)


def test_a_gradient_that_is_not_contiguous_or_one_number_for_all_is_as_any_other():
    module, x = layer(), torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    grads = [torch.randn(3, 2, 3, dtype=torch.float64).transpose(0, 1), torch.ones((), dtype=torch.float64)]
    for grad in (grads[0], grads[1].expand(2, 3, 3)):
        (found,) = torch.autograd.grad(linear(x, module), x, grad)
        (expected,) = torch.autograd.grad(module(x), x, grad)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


class Other(nn.Linear):
    """A layer that computes something else."""

    def forward(self, x):
        return super().forward(x) + 7


def test_in_evaluation_and_of_another_kind_the_layer_itself_is_called():
    x = torch.randn(2, 5, dtype=torch.float64)
    for module in (layer().eval(), Other(5, 3).double()):
        assert torch.equal(linear(x, module), module(x))
        assert torch.equal(linear(x, module, 1.25), module(x) * 1.25)


@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_on_the_layer_are_called(kind):
    module, calls = layer(), []
    getattr(module, kind)(lambda *_: calls.append(1))
    linear(torch.randn(2, 5, dtype=torch.float64), module)
    assert calls == [1]


def test_half_precision_is_left_to_torch():
    module, x = layer(dtype=torch.bfloat16), torch.randn(2, 5, dtype=torch.bfloat16)
    assert not by_hand(module, x)
    assert torch.equal(linear(x, module), module(x))


def test_under_autocast_the_product_is_narrow():
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(torch.randn(2, 5), layer(dtype=torch.float32)).dtype is torch.bfloat16


def test_products_with_a_factor_do_not_look_at_what_they_would_be_added_to():
    left, right = torch.randn(40, 7), torch.randn(7, 30)
    for scale in (1.0, 0.5):
        torch.testing.assert_close(product(left, right, scale), scale * (left @ right))
    assert torch.equal(product(left[:, :0], right[:0]), torch.zeros(40, 30))


@pytest.mark.parametrize("shape", [(1, 3), (0, 3), (50, 4)])
def test_columns_are_summed_up(shape):
    rows = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(column_sums(rows), rows.sum(0), rtol=0, atol=1e-12)
