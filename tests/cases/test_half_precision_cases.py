"""T6 of the cases: large logits, rows without any real position, and masks, in every precision that trains.

That a bad update is skipped and counted is in the tests of training's guard.
"""

from contextlib import nullcontext

import pytest
import torch

from seq2seq.models import build_model
from seq2seq.nn.attention import CrossAttention, Heads, SelfAttention
from seq2seq.nn.masks import causal_mask, padding_mask
from seq2seq.nn.norm import RMSNorm
from seq2seq.training.loss import batch_loss

B, S, T, D, V = 3, 5, 4, 24, 19
SRC_VALID = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]], dtype=torch.bool)
TGT_VALID = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]], dtype=torch.bool)
ARITHMETIC = {
    "fp32": (torch.float32, None),
    "bf16_mixed": (torch.float32, torch.bfloat16),
    "fp16_mixed": (torch.float32, torch.float16),
    "bf16_true": (torch.bfloat16, None),
}


@pytest.fixture(params=ARITHMETIC)
def arithmetic(request):
    """Precision of the weights, and the context of the forward pass."""
    weights, products = ARITHMETIC[request.param]
    return weights, (torch.autocast("cpu", products) if products is not None else nullcontext())


def test_t6_attention_with_scores_of_ten_thousand_and_rows_without_keys_is_finite(arithmetic):
    dtype, context = arithmetic
    torch.manual_seed(1)
    own, cross = SelfAttention(Heads(D, 4, 2, 6)).to(dtype), CrossAttention(Heads(D, 4, 2, 6)).to(dtype)
    with torch.no_grad():
        for weight in (own.query_key_value.weight, cross.query.weight, cross.key_value.weight):
            weight.mul_(12)
    x = (20 * torch.randn(B, S, D)).to(dtype).requires_grad_()
    query, key, _ = own.project(x)
    assert 1e4 < (query.float() @ key.float().repeat_interleave(2, 1).transpose(2, 3)).abs().max() < 6e5
    mask = padding_mask(SRC_VALID) & causal_mask(S)
    with context:
        out = own(x, mask) + cross(x, cross.keys_values(x), padding_mask(SRC_VALID))
    out.float().square().mean().backward()
    assert out.isfinite().all()
    for gradient in (x.grad, *(weight.grad for part in (own, cross) for weight in part.parameters())):
        assert gradient is not None
        assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_t6_norms_take_vectors_whose_squares_overflow_in_half_precision(dtype):
    torch.manual_seed(1)
    x = (2000 * torch.randn(B, D)).to(dtype)
    for norm in (RMSNorm(D, 1e-6), torch.nn.LayerNorm(D)):
        wanted = norm(x.float())
        torch.testing.assert_close(norm.to(dtype)(x).float(), wanted.detach(), rtol=0.02, atol=0.02)


def test_t6_logits_of_ten_thousand_give_a_finite_loss_and_finite_gradients(arithmetic, families):
    dtype, context = arithmetic
    torch.manual_seed(1)
    model = build_model(families("original"), V, V).to(dtype)
    hidden = torch.randn(B, T, D).to(dtype)
    hidden *= 1e4 / model.logits(hidden).abs().max().float().item()
    hidden.requires_grad_()
    targets = torch.randint(4, V, (B, T))
    with context:
        logits = model.logits(hidden)
        losses = batch_loss(model, hidden, targets, TGT_VALID, smoothing=0.1)
    assert logits.abs().max() > 9000
    assert losses.loss.dtype == torch.float32
    assert losses.loss.item() > 1000
    assert losses.loss.isfinite()
    assert losses.nll.isfinite()
    losses.loss.backward()
    assert hidden.grad is not None
    assert hidden.grad.isfinite().all()
    assert model.output.grad is not None
    assert model.output.grad.isfinite().all()


@pytest.mark.parametrize("name", ["original", "modern", "gpt2", "prefix_lm"])
def test_t6_a_pair_without_any_real_position_leaves_everything_finite(arithmetic, families, name):
    dtype, context = arithmetic
    torch.manual_seed(1)
    model = build_model(families(name, dropout=0.1), V, V).to(dtype).train()
    src, tgt_in = torch.randint(4, V, (B, S)), torch.randint(4, V, (B, T))
    with context:
        hidden = model.decode(src, SRC_VALID, tgt_in, TGT_VALID)
        losses = batch_loss(model, hidden, tgt_in, TGT_VALID, smoothing=0.1)
    assert hidden.isfinite().all()
    losses.loss.backward()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert any(gradient.any() for gradient in gradients)


def test_t6_what_a_row_without_real_positions_holds_changes_no_other_row(arithmetic, families):
    dtype, context = arithmetic
    torch.manual_seed(1)
    model = build_model(families("original"), V, V).to(dtype).eval()
    src, tgt_in = torch.randint(4, V, (B, S)), torch.randint(4, V, (B, T))
    with torch.no_grad(), context:
        whole = model.decode(src, SRC_VALID, tgt_in, TGT_VALID)[:2]
        src[2], tgt_in[2] = 4, 5
        changed = model.decode(src, SRC_VALID, tgt_in, TGT_VALID)[:2]
    assert torch.equal(whole, changed)


def test_t6_masks_are_boolean_so_that_no_constant_can_leave_the_range():
    for mask in (padding_mask(SRC_VALID), causal_mask(T), padding_mask(SRC_VALID) & causal_mask(S)):
        assert mask.dtype == torch.bool
