"""seq2seq.nn.cpu_attention against torch's own attention and against plain autograd with the same weights dropped."""

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from seq2seq.nn import cpu_attention
from seq2seq.nn.attention import CrossAttention, Heads, SelfAttention, merge_heads, split_heads
from seq2seq.nn.cpu_attention import LONGEST, attend, separate_heads, suits
from seq2seq.nn.masks import causal_mask, padding_mask

B, S, T, D, H, G, K = 2, 5, 3, 8, 6, 3, 4
VALID = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)


@pytest.fixture(autouse=True, params=[1, 16])
def fused(request, monkeypatch):
    """With torch's softmax, and without it."""
    monkeypatch.setattr(cpu_attention, "FUSED", request.param)


def heads(num_keys=S, groups=G):
    own = torch.Generator().manual_seed(1)  # dropout draws from the default one
    sizes = [(B, H, T, K), (B, groups, num_keys, K), (B, groups, num_keys, K)]
    return [torch.randn(size, dtype=torch.float64, requires_grad=True, generator=own) for size in sizes]


def same_with_gradients(found, expected, inputs):
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    torch.manual_seed(2)
    grad = torch.randn_like(expected)
    pairs = zip(
        torch.autograd.grad(found, inputs, grad, retain_graph=True),
        torch.autograd.grad(expected, inputs, grad),
        strict=True,
    )
    for gradient, other in pairs:
        torch.testing.assert_close(gradient, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("groups", [1, 3, 6])
@pytest.mark.parametrize("kind", ["none", "padding", "each query its own", "causal"])
def test_without_dropout_outputs_and_gradients_are_those_of_torch(kind, groups):
    mask, causal, num_keys = None, kind == "causal", T if kind == "causal" else S
    if kind == "padding":
        mask = padding_mask(VALID)
    if kind == "each query its own":
        mask = torch.rand(B, 1, T, S) > 0.4
        mask[0, 0, 1] = False  # attends to nothing
    query, key, value = inputs = heads(num_keys, groups)
    expected = scaled_dot_product_attention(
        query, key, value, mask, is_causal=causal, enable_gqa=groups != H, scale=1 / math.sqrt(K)
    )
    same_with_gradients(attend(query, key, value, mask, causal), merge_heads(expected), inputs)


def test_a_query_that_may_attend_to_nothing_gets_zeros_and_gives_no_gradient():
    query, key, value = heads()
    mask = torch.ones(B, 1, T, S, dtype=torch.bool)
    mask[1, 0, 2] = False
    context = attend(query, key, value, mask, dropout=0.3)
    assert torch.equal(context[1, 2], torch.zeros(H * K, dtype=torch.float64))
    context.sum().backward()
    assert torch.equal(query.grad[1, :, 2], torch.zeros(H, K, dtype=torch.float64))
    assert all(torch.isfinite(part.grad).all() for part in (query, key, value))


def test_scores_may_be_large():
    query, key, value = heads(groups=H)
    query, key = 1e3 * query, 1e3 * key
    expected = scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(attend(query, key, value), merge_heads(expected), rtol=0, atol=1e-9)


def dropped_weights(dropout, num_keys=S):
    """The weights after dropout, read off with values that are rows of a unit matrix."""
    query, key, _ = heads(num_keys)
    query = query * (num_keys / K) ** 0.5  # as all widths become that of the unit matrix
    value = torch.eye(num_keys, dtype=torch.float64).expand(B, G, num_keys, num_keys)
    query, key = (torch.cat([part, part.new_zeros(*part.shape[:3], num_keys - K)], 3) for part in (query, key))
    return split_heads(attend(query, key, value, dropout=dropout), H)


def test_with_dropout_outputs_and_gradients_are_those_of_the_same_weights_dropped():
    torch.manual_seed(3)
    mask = dropped_weights(0.3) != 0
    assert 0 < mask.sum() < mask.numel()
    query, key, value = inputs = heads()
    weights = (query @ key.repeat_interleave(2, 1).transpose(2, 3) / math.sqrt(K)).softmax(-1)
    kept = 1 - round(0.3 * 256) / 256
    expected = merge_heads((weights * mask / kept) @ value.repeat_interleave(2, 1))
    torch.manual_seed(3)
    same_with_gradients(attend(query, key, value, dropout=0.3), expected, inputs)


def test_weights_are_dropped_as_often_as_asked_and_stay_the_same_on_average():
    torch.manual_seed(4)
    whole = dropped_weights(0.0)
    draws = torch.stack([dropped_weights(0.25) for _ in range(400)])
    count = draws.numel()
    assert (draws == 0).double().mean().item() == pytest.approx(0.25, abs=5 * (0.25 * 0.75 / count) ** 0.5)
    deviations = (draws.mean(0) - whole) / (whole * (1 / 3 / 400) ** 0.5)
    assert deviations.abs().max() < 5
    assert deviations.square().mean().item() == pytest.approx(1, abs=0.5)


def test_gradients_agree_with_finite_differences():
    query, key, value = heads()

    def dropped(*inputs):
        torch.manual_seed(5)
        return attend(*inputs, mask=padding_mask(VALID), dropout=0.3)

    assert torch.autograd.gradcheck(dropped, (query, key, value))
    projected = torch.randn(B, T, 4 * K, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: separate_heads(x, (2, 1, 1)), projected)


def test_heads_are_separated_as_by_splitting():
    projected = torch.randn(B, T, (H + 2 * G) * K, dtype=torch.float64, requires_grad=True)
    found = separate_heads(projected, (H, G, G))
    expected = [split_heads(x, x.shape[2] // K) for x in projected.split([H * K, G * K, G * K], dim=-1)]
    grads = [torch.randn_like(part) for part in expected]
    for part, other in zip(found, expected, strict=True):
        assert torch.equal(part, other)
        assert part.is_contiguous()
    (gradient,) = torch.autograd.grad(found, projected, grads)
    (other_gradient,) = torch.autograd.grad(expected, projected, grads)
    assert torch.equal(gradient, other_gradient)


def test_heads_of_which_some_are_not_used_get_gradients_of_zero():
    projected = torch.randn(B, T, 3 * K, dtype=torch.float64, requires_grad=True)
    separate_heads(projected, (1, 1, 1))[1].sum().backward()
    assert torch.equal(projected.grad.view(B, T, 3, K).sum((0, 1, 3)), torch.tensor([0.0, B * T * K, 0.0]).double())


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_a_batch_without_sentences_passes(dropout):
    query, key, value = (torch.randn(0, 2, length, K, requires_grad=True) for length in (T, S, S))
    context = attend(query, key, value, torch.ones(0, 1, 1, S, dtype=torch.bool), dropout=dropout)
    assert context.shape == (0, T, 2 * K)
    context.sum().backward()
    assert query.grad.shape == query.shape


def test_it_is_for_full_precision_on_cpus_with_dropout_or_few_keys():
    query = torch.zeros(1, 1, 1, 2)
    assert suits(query, LONGEST, 0.0)
    assert not suits(query, LONGEST + 1, 0.0)
    assert suits(query, LONGEST + 1, 0.1)
    assert not suits(query.half(), 1, 0.1)
    assert not suits(query.to("meta"), 1, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not suits(query, 1, 0.1)


@pytest.mark.parametrize("norm_eps", [None, 1e-6])
def test_layers_in_training_without_dropout_give_what_they_give_in_evaluation(norm_eps):
    torch.manual_seed(6)
    heads = Heads(D, H, G, K, norm_eps=norm_eps)
    own, cross = SelfAttention(heads).double(), CrossAttention(heads).double()
    x, memory = torch.randn(B, T, D, dtype=torch.float64), torch.randn(B, S, D, dtype=torch.float64)
    parameters = [*own.parameters(), *cross.parameters()]

    def outputs():
        masked = own(memory, padding_mask(VALID)).sum((0, 1))
        return [own(x, causal=True), cross(x, cross.keys_values(memory), padding_mask(VALID)), masked]

    found = outputs()
    own.eval()
    cross.eval()
    expected = outputs()
    for out, other in zip(found, expected, strict=True):
        torch.testing.assert_close(out, other, rtol=0, atol=1e-12)
    gradients = torch.autograd.grad(sum(out.square().sum() for out in found), parameters)
    others = torch.autograd.grad(sum(out.square().sum() for out in expected), parameters)
    for gradient, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(gradient, other, rtol=0, atol=1e-10)


def test_attention_dropout_makes_layers_differ_from_one_call_to_the_next_in_training_alone():
    torch.manual_seed(7)
    layer = SelfAttention(Heads.plain(D, 2, dropout=0.5))
    x = torch.randn(B, T, D)
    assert not torch.equal(layer(x, causal=True), layer(x, causal=True))
    layer.eval()
    assert torch.equal(layer(x, causal=True), layer(x, causal_mask(T)))
