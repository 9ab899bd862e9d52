"""seq2seq.nn.feed_forward: f(x W1 + b1) W2 + b2, plain and gated, each position on its own."""

import math

import pytest
import torch
from torch.nn import functional

from seq2seq.config import Activation
from seq2seq.nn.feed_forward import ACTIVATIONS, FeedForward

B, T, D, F = 2, 3, 8, 12


@pytest.fixture
def network():
    torch.manual_seed(3)
    return FeedForward(D, F).double()


def test_it_is_equation_two_of_the_paper(network):
    x = torch.randn(B, T, D, dtype=torch.float64)
    w1, b1, w2, b2 = (p.detach() for p in network.parameters())
    for b in range(B):
        for t in range(T):
            inner = [max(0.0, float(w1[f] @ x[b, t] + b1[f])) for f in range(F)]
            expected = w2 @ torch.tensor(inner, dtype=torch.float64) + b2
            torch.testing.assert_close(network(x)[b, t].detach(), expected)


def test_a_position_does_not_see_another(network):
    x = torch.randn(B, T, D, dtype=torch.float64)
    changed = x.clone()
    changed[:, 1] += 1
    before, after = network(x), network(changed)
    torch.testing.assert_close(after[:, [0, 2]], before[:, [0, 2]])
    assert (after[:, 1] - before[:, 1]).abs().max() > 1e-3


def test_it_has_two_matrices_and_their_biases(network):
    assert sorted(tuple(p.shape) for p in network.parameters()) == [(D,), (D, F), (F,), (F, D)]


def test_its_dropout_stands_behind_the_relu():
    network = FeedForward(D, F, dropout=0.75)
    with torch.no_grad():
        network.inner.bias.fill_(5.0)  # every inner value is positive, so every zero comes from dropout
        network.inner.weight.zero_()
        network.output.weight.copy_(torch.eye(D, F))
        network.output.bias.zero_()
    y = network.train()(torch.zeros(10, 10, D))
    assert (y == 0).float().mean().item() == pytest.approx(0.75, abs=0.06)
    assert torch.unique(y).tolist() == pytest.approx([0.0, 20.0])


FORMULAS = {
    Activation.relu: lambda x: max(0.0, x),
    Activation.gelu: lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    Activation.gelu_tanh: lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    Activation.gelu_sigmoid: lambda x: x / (1 + math.exp(-1.702 * x)),
    Activation.silu: lambda x: x / (1 + math.exp(-x)),
}
TORCHS = {
    Activation.relu: functional.relu,
    Activation.gelu: functional.gelu,
    Activation.gelu_tanh: lambda x: functional.gelu(x, approximate="tanh"),
    Activation.gelu_sigmoid: lambda x: x * torch.sigmoid(1.702 * x),
    Activation.silu: functional.silu,
}


@pytest.mark.parametrize("activation", list(Activation), ids=lambda activation: activation.name)
def test_an_activation_is_its_papers_formula_and_torchs_function(activation):
    values = torch.linspace(-6, 6, 41, dtype=torch.float64)
    expected = torch.tensor([FORMULAS[activation](x) for x in values.tolist()], dtype=torch.float64)
    torch.testing.assert_close(ACTIVATIONS[activation](values), expected, atol=1e-13, rtol=0)
    torch.testing.assert_close(TORCHS[activation](values), expected, atol=1e-13, rtol=0)
    others = [ACTIVATIONS[other](values) for other in Activation if other is not activation]
    assert all((other - expected).abs().max() > 1e-4 for other in others)


def test_the_three_gelus_differ_by_less_than_their_papers_say():
    values = torch.linspace(-6, 6, 1001, dtype=torch.float64)
    exact = ACTIVATIONS[Activation.gelu](values)
    assert (ACTIVATIONS[Activation.gelu_tanh](values) - exact).abs().max() < 5e-4
    assert (ACTIVATIONS[Activation.gelu_sigmoid](values) - exact).abs().max() < 2.1e-2


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", list(Activation), ids=lambda activation: activation.name)
@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
def test_each_network_is_its_formula(activation, gated, bias):
    torch.manual_seed(4)
    network = FeedForward(D, F, activation, gated, bias).double().requires_grad_(False)
    x = torch.randn(B, T, D, dtype=torch.float64)
    inner = x @ network.inner.weight.T + (network.inner.bias if bias else 0)
    assert inner.shape == (B, T, 2 * F if gated else F)
    active = TORCHS[activation](inner[..., :F])
    if gated:
        active = active * inner[..., F:]
    expected = active @ network.output.weight.T + (network.output.bias if bias else 0)
    torch.testing.assert_close(network(x), expected, atol=1e-12, rtol=0)


def test_a_gated_network_has_three_matrices_of_parameters_and_without_biases_nothing_else():
    network = FeedForward(D, F, Activation.silu, gated=True, bias=False)
    assert sum(p.numel() for p in network.parameters()) == 3 * D * F
    with_biases = FeedForward(D, F, Activation.silu, gated=True)
    assert sum(p.numel() for p in with_biases.parameters()) == 3 * D * F + 2 * F + D


def test_a_gates_dropout_stands_behind_the_gate():
    network = FeedForward(D, F, Activation.relu, gated=True, dropout=0.75)
    with torch.no_grad():
        network.inner.bias[:F].fill_(5.0)
        network.inner.bias[F:].fill_(3.0)
        network.inner.weight.zero_()
        network.output.weight.copy_(torch.eye(D, F))
        network.output.bias.zero_()
    y = network.train()(torch.zeros(10, 10, D))
    assert (y == 0).float().mean().item() == pytest.approx(0.75, abs=0.06)
    assert torch.unique(y).tolist() == pytest.approx([0.0, 60.0])


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
def test_its_gradients_are_those_of_the_formula(gated):
    network = FeedForward(3, 5, Activation.silu, gated).double()
    torch.autograd.gradcheck(network, (torch.randn(1, 2, 3, dtype=torch.float64, requires_grad=True),))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("scale", [1.0, 1.25])
def test_in_training_outputs_and_gradients_are_those_of_its_layers_one_after_the_other(bias, dropout, scale):
    torch.manual_seed(4)
    network = FeedForward(D, F, bias=bias, dropout=dropout).double()
    x = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    inputs = [x, *network.parameters()]
    torch.manual_seed(5)
    found = network(x, scale)
    torch.manual_seed(5)
    expected = network.output(network.dropout(network.inner(x).relu())) * scale
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)
    grad = torch.randn_like(found)
    pairs = zip(torch.autograd.grad(found, inputs, grad), torch.autograd.grad(expected, inputs, grad), strict=True)
    for gradient, other in pairs:
        torch.testing.assert_close(gradient, other, rtol=0, atol=1e-13)


def test_in_training_the_gradients_are_those_of_finite_differences():
    network = FeedForward(4, 5, dropout=0.3).double()

    def dropped(x):
        torch.manual_seed(6)
        return network(x)

    assert torch.autograd.gradcheck(dropped, torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("frozen", ["inner.weight", "inner.bias", "output.weight", "output.bias"])
def test_in_training_a_frozen_part_gets_no_gradient(frozen):
    network = FeedForward(D, F)
    network.get_parameter(frozen).requires_grad_(False)
    network(torch.randn(B, T, D)).sum().backward()
    assert [name for name, part in network.named_parameters() if part.grad is None] == [frozen]


def test_in_training_under_autocast_the_products_are_narrow():
    network = FeedForward(D, F, dropout=0.3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = network(torch.randn(B, T, D))
    assert y.dtype is torch.bfloat16
    y.float().sum().backward()
    assert network.inner.weight.grad.dtype is torch.float32
