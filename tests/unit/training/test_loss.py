"""The loss and its gradient against torch's own, in float64."""

import pytest
import torch

from seq2seq.training.loss import smoothed_cross_entropy

N, V = 7, 11


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_loss_and_gradient_equal_torch_cross_entropy(smoothing):
    torch.manual_seed(0)
    logits = torch.randn(N, V, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, V, (N,))
    loss, nll = smoothed_cross_entropy(logits, targets, smoothing)
    (gradient,) = torch.autograd.grad(loss * 3, logits)
    expected = torch.nn.functional.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    (expected_gradient,) = torch.autograd.grad(expected * 3, logits)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-12, atol=1e-12)
    plain = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
    torch.testing.assert_close(nll, plain, rtol=1e-12, atol=1e-12)


def test_the_loss_is_the_formula_of_the_docstring():
    logits = torch.tensor([[1.0, 2.0, 0.5]], dtype=torch.float64)
    log_probs = logits[0] - logits[0].exp().sum().log()
    q = torch.tensor([0.1 / 3, 0.9 + 0.1 / 3, 0.1 / 3], dtype=torch.float64)
    loss, nll = smoothed_cross_entropy(logits, torch.tensor([1]), 0.1)
    torch.testing.assert_close(loss, -(q * log_probs).sum())
    torch.testing.assert_close(nll, -log_probs[1])


def test_gradients_agree_with_finite_differences():
    torch.manual_seed(0)
    logits = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([0, 4, 2])
    assert torch.autograd.gradcheck(lambda x: smoothed_cross_entropy(x, targets, 0.1)[0], (logits,))


def test_half_precision_logits_are_computed_in_float32():
    torch.manual_seed(0)
    logits = (30 * torch.randn(4, 9)).to(torch.bfloat16).requires_grad_()
    loss, nll = smoothed_cross_entropy(logits, torch.tensor([1, 2, 3, 8]), 0.1)
    assert loss.dtype == nll.dtype == torch.float32
    assert torch.isfinite(loss)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad.dtype == torch.bfloat16


def test_no_gradient_flows_through_the_likelihood():
    _, nll = smoothed_cross_entropy(torch.randn(2, 3, requires_grad=True), torch.tensor([0, 1]), 0.1)
    assert not nll.requires_grad
