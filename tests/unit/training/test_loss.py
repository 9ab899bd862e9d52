"""The loss and its gradient against torch's own, in float64; in chunks against whole."""

import pytest
import torch

from seq2seq.config import ModelConfig, Tying
from seq2seq.models import build_model
from seq2seq.training.loss import batch_loss, projected_cross_entropy, smoothed_cross_entropy

N, D, V = 7, 8, 11
ROWS = torch.tensor([6, 0, 3, 4, 1])


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


def projection(with_bias, dtype=torch.float64):
    """Vectors, matrix, and bias or None, all trained, and the right pieces of the rows that count."""
    torch.manual_seed(3)
    hidden, output, bias = torch.randn(N, D), torch.randn(V, D), torch.randn(V)
    parts = [part.to(dtype).requires_grad_() for part in (hidden, output, bias)[: 3 if with_bias else 2]]
    targets = torch.randint(0, V, (len(ROWS),))
    targets[:2] = torch.nn.functional.linear(*parts)[ROWS[:2]].argmax(-1)  # so that some are right
    return parts, targets


def chunked(parts, targets, smoothing, chunk):
    bias = parts[2] if len(parts) == 3 else None
    return projected_cross_entropy(parts[0], ROWS, targets, parts[1], bias, smoothing, chunk)


@pytest.mark.parametrize("chunk", [1, 2, 5, 100, None])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("with_bias", [False, True])
def test_chunks_of_logits_give_loss_gradients_and_counts_of_all_logits_at_once(with_bias, smoothing, chunk):
    parts, targets = projection(with_bias)
    loss, nll, correct = chunked(parts, targets, smoothing, chunk)
    gradients = torch.autograd.grad(loss * 3, parts)
    logits = torch.nn.functional.linear(*parts)[ROWS]
    expected = torch.nn.functional.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    for gradient, other in zip(gradients, torch.autograd.grad(expected * 3, parts), strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-12, atol=1e-12)
    plain = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
    torch.testing.assert_close(nll, plain, rtol=1e-12, atol=1e-12)
    assert correct.item() == (logits.argmax(-1) == targets).sum().item() >= 2
    assert not nll.requires_grad
    assert not correct.requires_grad


@pytest.mark.parametrize("scale", [1.0, 30.0, 3e3])
@pytest.mark.parametrize("wanted", [torch.float64, torch.float32])
def test_logits_however_large_or_small_give_the_loss_and_gradients_of_torch(scale, wanted):
    parts, targets = projection(with_bias=True)
    with torch.no_grad():
        parts[2].add_(-25.0)  # some rows' best logits are near 0, others far below or above
        parts[0].mul_(scale)
    parts = [part.detach().to(wanted).requires_grad_() for part in parts]
    loss, _, correct = chunked(parts, targets, 0.1, 1)
    logits = torch.nn.functional.linear(*parts)[ROWS].double()
    expected = torch.nn.functional.cross_entropy(logits, targets, label_smoothing=0.1, reduction="sum")
    near = {"rtol": 1e-10, "atol": 1e-10} if wanted is torch.float64 else {"rtol": 1e-3, "atol": 1e-3}
    torch.testing.assert_close(loss.double(), expected, **near)
    assert correct.item() == (logits.argmax(-1) == targets).sum().item()
    for gradient, other in zip(torch.autograd.grad(loss, parts), torch.autograd.grad(expected, parts), strict=True):
        torch.testing.assert_close(gradient, other, **near)


def test_gradients_of_chunks_agree_with_finite_differences():
    parts, targets = projection(with_bias=True)
    assert torch.autograd.gradcheck(lambda *parts: chunked(parts, targets, 0.1, 2)[0], parts)


def test_gradients_of_chunks_can_be_taken_twice():
    parts, targets = projection(with_bias=True)
    loss = chunked(parts, targets, 0.1, 2)[0]
    first = torch.autograd.grad(loss, parts, retain_graph=True)
    second = torch.autograd.grad(loss, parts)
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_what_is_frozen_gets_no_gradient_and_the_rest_the_same(frozen):
    parts, targets = projection(with_bias=True)
    everything = torch.autograd.grad(chunked(parts, targets, 0.1, 2)[0], parts)
    parts[frozen].requires_grad_(False)
    chunked(parts, targets, 0.1, 2)[0].backward()
    for number, part in enumerate(parts):
        assert (part.grad is None) == (number == frozen)
        if number != frozen:
            assert torch.equal(part.grad, everything[number])


def test_without_gradients_the_loss_is_the_same_and_nothing_is_kept_for_them():
    parts, targets = projection(with_bias=True)
    trained = chunked(parts, targets, 0.1, 2)
    with torch.no_grad():
        loss, nll, correct = chunked(parts, targets, 0.1, 2)
    assert not loss.requires_grad
    assert [loss.item(), nll.item(), correct.item()] == [value.item() for value in trained]


def test_no_rows_give_no_loss_and_gradients_of_zero():
    parts, _ = projection(with_bias=True)
    nothing = torch.zeros(0, dtype=torch.long)
    loss, nll, correct = projected_cross_entropy(parts[0], nothing, nothing, parts[1], parts[2], 0.1)
    loss.backward()
    assert (loss.item(), nll.item(), correct.item()) == (0, 0, 0)
    assert all(torch.equal(part.grad, torch.zeros_like(part)) for part in parts)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_the_products_are_narrow_and_the_sums_wide(dtype):
    parts, targets = projection(with_bias=True, dtype=torch.float32)
    with torch.autocast("cpu", dtype=dtype):
        loss, nll, _ = chunked(parts, targets, 0.1, 2)
        logits = torch.nn.functional.linear(parts[0][ROWS], *parts[1:])
        assert logits.dtype is dtype
    expected, expected_nll = smoothed_cross_entropy(logits, targets, 0.1)
    assert loss.dtype is nll.dtype is torch.float32
    torch.testing.assert_close(nll, expected_nll, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(loss, expected, rtol=1e-3, atol=1e-5)  # the mean of the logits is not rounded to `dtype`
    for gradient, other in zip(torch.autograd.grad(loss, parts), torch.autograd.grad(expected, parts), strict=True):
        assert gradient.dtype is torch.float32
        torch.testing.assert_close(gradient, other, rtol=2e-2, atol=2e-2)


def test_a_model_in_half_precision_gets_gradients_in_half_precision():
    parts, targets = projection(with_bias=True, dtype=torch.bfloat16)
    loss, nll, _ = chunked(parts, targets, 0.1, 2)
    wide = [part.detach().float().requires_grad_() for part in parts]
    expected = chunked(wide, targets, 0.1, 2)[0]
    assert loss.dtype is nll.dtype is torch.float32
    torch.testing.assert_close(loss, expected, rtol=1e-2, atol=1e-2)
    for gradient, other in zip(torch.autograd.grad(loss, parts), torch.autograd.grad(expected, wide), strict=True):
        assert gradient.dtype is torch.bfloat16
        torch.testing.assert_close(gradient.float(), other, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("tying", [Tying.none, Tying.three_way])
def test_a_batch_has_the_loss_and_the_gradients_of_its_whole_logits(tying):
    sizes = ModelConfig(
        d_model=D, num_heads=2, d_ff=12, num_encoder_layers=1, num_decoder_layers=1, tying=tying, output_bias=True
    )
    torch.manual_seed(4)
    model = build_model(sizes, V, V).double()
    src, tgt_in, targets = (torch.randint(4, V, (2, length)) for length in (5, 3, 3))
    valid, counted = torch.ones(2, 5, dtype=torch.bool), torch.tensor([[True, True, True], [True, True, False]])
    model.eval()
    parameters = list(model.parameters())
    found = batch_loss(model, model.decode(src, valid, tgt_in), targets, counted, 0.1, chunk=2)
    gradients = torch.autograd.grad(found.loss, parameters)
    logits = model(src, valid, tgt_in)[counted]
    loss, nll = smoothed_cross_entropy(logits, targets[counted], 0.1)
    torch.testing.assert_close((found.loss, found.nll), (loss, nll), rtol=1e-12, atol=1e-12)
    assert found.correct.item() == (logits.argmax(-1) == targets[counted]).sum().item()
    for gradient, other in zip(gradients, torch.autograd.grad(loss, parameters), strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-10, atol=1e-12)


def test_logits_never_exist_whole(monkeypatch):
    sizes = []
    product = torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b, **out: sizes.append(len(a)) or product(a, b, **out))
    parts, targets = projection(with_bias=False)
    chunked(parts, targets, 0.1, 2)
    assert sizes == [2, 2, 1]
