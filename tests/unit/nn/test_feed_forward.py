"""seq2seq.nn.feed_forward: max(0, x W1 + b1) W2 + b2, each position on its own."""

import pytest
import torch

from seq2seq.nn.feed_forward import FeedForward

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
