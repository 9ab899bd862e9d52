"""seq2seq.nn.attention: the golden numbers, every shape on the way, and what it refuses."""

import math

import pytest
import torch
from torch import nn

from seq2seq.config import AttentionBias
from seq2seq.nn.attention import CrossAttention, Heads, SelfAttention, attention_weights, merge_heads, split_heads
from seq2seq.nn.masks import causal_mask, padding_mask
from seq2seq.nn.norm import RMSNorm

B, T, S, D, H, K = 2, 3, 5, 8, 2, 4
PLAIN = Heads.plain(D, H)

X = [[1, 0], [0, 1], [1, 1]]
WQ, WK, WV = [[1, 0], [0, 1]], [[1, 0], [1, 1]], [[1, 1], [0, 1]]
KEYS, VALUES, SCORES = [[1, 0], [1, 1], [2, 1]], [[1, 1], [0, 1], [1, 2]], [[1, 1, 2], [0, 1, 1], [1, 2, 3]]
WEIGHTS = [[0.2483, 0.2483, 0.5035], [0.1978, 0.4011, 0.4011], [0.1400, 0.2840, 0.5760]]
OUTPUT = [[0.7517, 1.5035], [0.5989, 1.4011], [0.7160, 1.5760]]
CAUSAL_WEIGHTS = [[1, 0, 0], [0.3302, 0.6698, 0], [0.1400, 0.2840, 0.5760]]
CAUSAL_OUTPUT = [[1, 1], [0.3302, 1], [0.7160, 1.5760]]


def tensor(rows):
    return torch.tensor(rows, dtype=torch.float64)


def assert_four_digits(actual, expected):
    torch.testing.assert_close(actual.detach(), tensor(expected), atol=5.1e-5, rtol=0)


@pytest.fixture
def golden_layer():
    """One head of width 2 with the matrices of the worked example; the output projection is the identity."""
    layer = SelfAttention(Heads.plain(2, 1)).double().eval()
    with torch.no_grad():
        layer.query_key_value.weight.copy_(torch.cat([tensor(w).T for w in (WQ, WK, WV)]))
        layer.output.weight.copy_(torch.eye(2))
        layer.query_key_value.bias.zero_()
        layer.output.bias.zero_()
    return layer


def test_golden_projections_and_scores(golden_layer):
    query, key, value = golden_layer.project(tensor([X]))
    assert query[0, 0].tolist() == X
    assert key[0, 0].tolist() == KEYS
    assert value[0, 0].tolist() == VALUES
    assert (query @ key.mT)[0, 0].tolist() == SCORES


def test_golden_weights_and_output(golden_layer):
    assert_four_digits(golden_layer.weights(tensor([X]), None)[0, 0], WEIGHTS)
    assert_four_digits(golden_layer(tensor([X]))[0], OUTPUT)


def test_golden_causal_weights_and_output(golden_layer):
    assert_four_digits(golden_layer.weights(tensor([X]), causal_mask(3))[0, 0], CAUSAL_WEIGHTS)
    assert_four_digits(golden_layer(tensor([X]), causal=True)[0], CAUSAL_OUTPUT)


def test_golden_cross_attention_gives_the_same_numbers_on_the_same_sequence():
    layer = CrossAttention(Heads.plain(2, 1)).double()
    with torch.no_grad():
        layer.query.weight.copy_(tensor(WQ).T)
        layer.key_value.weight.copy_(torch.cat([tensor(WK).T, tensor(WV).T]))
        layer.output.weight.copy_(torch.eye(2))
        for linear in (layer.query, layer.key_value, layer.output):
            linear.bias.zero_()
    x, everything = tensor([X]), torch.ones(1, 1, 1, 3, dtype=torch.bool)
    assert_four_digits(layer(x, layer.keys_values(x), everything)[0], OUTPUT)
    assert_four_digits(layer.weights(x, layer.keys_values(x), everything)[0, 0], WEIGHTS)


@pytest.mark.parametrize("num_heads", [2, 3])
def test_golden_numbers_of_several_query_heads_over_one_key_and_value(num_heads):
    """Each head asks what the one of the example asks, and the output projection takes the last one's answer."""
    layer = SelfAttention(Heads(2, num_heads, 1, 2, AttentionBias.none)).double().eval()
    with torch.no_grad():
        layer.query_key_value.weight.copy_(torch.cat([tensor(w).T for w in [WQ] * num_heads + [WK, WV]]))
        layer.output.weight.zero_()
        layer.output.weight[:, -2:] = torch.eye(2)
    query, key, value = layer.project(tensor([X]))
    assert (query.shape, key.shape, value.shape) == ((1, num_heads, 3, 2), (1, 1, 3, 2), (1, 1, 3, 2))
    assert key[0, 0].tolist() == KEYS
    assert value[0, 0].tolist() == VALUES
    for head in range(num_heads):
        assert_four_digits(layer.weights(tensor([X]), causal_mask(3))[0, head], CAUSAL_WEIGHTS)
    assert_four_digits(layer(tensor([X]))[0], OUTPUT)
    assert_four_digits(layer(tensor([X]), causal=True)[0], CAUSAL_OUTPUT)


def test_golden_score_of_two_vectors():
    query, key = tensor([[[[0.3, 1.2]]]]), tensor([[[[0.8, 0.5], [0.0, 0.0]]]])
    assert (query @ key.mT)[0, 0, 0, 0].item() == pytest.approx(0.84)
    one, other = attention_weights(query, key, None)[0, 0, 0].tolist()
    assert one / other == pytest.approx(math.exp(0.84 / math.sqrt(2)))


@pytest.mark.parametrize("width", [4, 64])
def test_scores_of_unit_vectors_have_variance_k_and_after_scaling_one(width):
    torch.manual_seed(1)
    query, key = torch.randn(1, 1, 400, width), torch.randn(1, 1, 400, width)
    scores = query @ key.mT
    assert scores.var().item() == pytest.approx(width, rel=0.1)
    ratios = attention_weights(query, key, None).log()
    scaled = ratios - ratios.mean(-1, keepdim=True)  # the softmax forgets a constant of each row
    assert scaled.var().item() == pytest.approx(1, rel=0.1)


def test_heads_are_neighbouring_columns():
    x = torch.arange(B * T * D).reshape(B, T, D).double()
    heads = split_heads(x, H)
    assert heads.shape == (B, H, T, K)
    for head in range(H):
        assert torch.equal(heads[:, head], x[..., head * K : (head + 1) * K])
    assert torch.equal(merge_heads(heads), x)


@pytest.mark.parametrize(("batch", "length", "width", "heads", "head_width"), [(2, 4, 8, 2, 4), (2, 128, 768, 12, 64)])
def test_the_worked_models_have_the_shapes_of_the_walk(batch, length, width, heads, head_width):
    layer, x = SelfAttention(Heads.plain(width, heads)), torch.randn(batch, length, width)
    assert layer.query_key_value(x).shape == (batch, length, 3 * width)
    query, key, value = layer.project(x)
    assert query.shape == key.shape == value.shape == (batch, heads, length, head_width)
    weights = layer.weights(x, None)
    assert weights.shape == (batch, heads, length, length)
    assert (weights @ value).shape == (batch, heads, length, head_width)
    assert merge_heads(weights @ value).shape == (batch, length, width)
    assert layer(x).shape == (batch, length, width)


def test_cross_attentions_scores_are_target_by_source():
    layer = CrossAttention(PLAIN)
    source = layer.keys_values(torch.randn(B, S, D))
    assert source.key.shape == source.value.shape == (B, H, S, K)
    mask = torch.ones(B, 1, 1, S, dtype=torch.bool)
    assert layer.weights(torch.randn(B, T, D), source, mask).shape == (B, H, T, S)
    assert layer(torch.randn(B, T, D), source, mask).shape == (B, T, D)


def test_a_layer_has_four_square_matrices():
    for layer in (SelfAttention(PLAIN), CrossAttention(PLAIN)):
        matrices = [p for p in layer.parameters() if p.dim() == 2]
        assert sum(p.numel() for p in matrices) == 4 * D * D
        assert sum(p.numel() for p in layer.parameters()) == 4 * D * D + 4 * D


def test_dropped_weights_change_the_output_in_training_only():
    layer, x = SelfAttention(Heads.plain(D, H, dropout=0.5)), torch.randn(B, T, D)
    assert not torch.equal(layer.train()(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))
    cross = CrossAttention(Heads.plain(D, H, dropout=0.5))
    source, mask = cross.keys_values(torch.randn(B, S, D)), torch.ones(B, 1, 1, S, dtype=torch.bool)
    assert not torch.equal(cross.train()(x, source, mask), cross(x, source, mask))
    assert torch.equal(cross.eval()(x, source, mask), cross(x, source, mask))


def test_a_width_that_heads_do_not_divide_is_refused():
    message = "d_model=10 is not divisible by num_heads=4; choose d_model as a multiple of num_heads"
    with pytest.raises(ValueError, match=message):
        Heads.plain(10, 4)


def test_key_heads_that_do_not_divide_the_query_heads_are_refused():
    message = "num_heads=4 is not divisible by num_kv_heads=3; choose num_heads as a multiple of num_kv_heads"
    with pytest.raises(ValueError, match=message):
        Heads(D, 4, 3, K)


GROUPED = Heads(D, 6, 3, 4, AttentionBias.none)


def test_heads_say_the_widths_of_the_projections_and_whether_keys_are_shared():
    assert (GROUPED.query_width, GROUPED.kv_width, GROUPED.grouped) == (24, 12, True)
    assert (PLAIN.query_width, PLAIN.kv_width, PLAIN.grouped) == (D, D, False)


def test_grouped_heads_have_fewer_parameters_and_any_width():
    for layer in (SelfAttention(GROUPED), CrossAttention(GROUPED)):
        assert sum(p.numel() for p in layer.parameters()) == 2 * D * 24 + 2 * D * 12
    x = torch.randn(B, T, D)
    query, key, value = SelfAttention(GROUPED).project(x)
    assert (query.shape, key.shape, value.shape) == ((B, 6, T, 4), (B, 3, T, 4), (B, 3, T, 4))
    source = CrossAttention(GROUPED).keys_values(torch.randn(B, S, D))
    assert source.key.shape == source.value.shape == (B, 3, S, 4)


@pytest.mark.parametrize(
    ("bias", "inputs", "output"),
    [(AttentionBias.all, True, True), (AttentionBias.qkv, True, False), (AttentionBias.none, False, False)],
    ids=lambda value: value.name if isinstance(value, AttentionBias) else "",
)
def test_biases_stand_where_they_are_asked_for(bias, inputs, output):
    heads = Heads(D, H, H, K, bias)
    own, other = SelfAttention(heads), CrossAttention(heads)
    assert {(layer.bias is not None) for layer in (own.query_key_value, other.query, other.key_value)} == {inputs}
    assert {(layer.bias is not None) for layer in (own.output, other.output)} == {output}


def test_each_heads_queries_and_keys_are_normed_before_they_are_multiplied_and_values_are_not():
    heads = Heads(D, 4, 2, 6, norm_eps=1e-6)
    own = SelfAttention(heads).double()
    x = 5 * torch.randn(B, T, D, dtype=torch.float64)
    query, key, value = own.project(x)
    for normed in (query, key):
        torch.testing.assert_close(normed.square().mean(-1), torch.ones(normed.shape[:-1]).double(), atol=1e-4, rtol=0)
    torch.testing.assert_close(value, split_heads(own.query_key_value(x)[..., -12:], 2))
    other = CrossAttention(heads).double()
    source = other.keys_values(x)
    for normed in (other.queries(x), source.key):
        torch.testing.assert_close(normed.square().mean(-1), torch.ones(normed.shape[:-1]).double(), atol=1e-4, rtol=0)
    torch.testing.assert_close(source.value, split_heads(other.key_value(x)[..., -12:], 2))
    assert [type(norm) for norm in (own.query_norm, own.key_norm, other.query_norm)] == [RMSNorm] * 3
    assert own.query_norm.weight.shape == (6,)
    assert isinstance(SelfAttention(PLAIN).query_norm, nn.Identity)


@pytest.mark.parametrize("num_kv_heads", [4, 2, 1])
def test_a_fully_masked_row_gives_the_bias_and_finite_gradients_in_half_precision_too(num_kv_heads):
    valid = torch.tensor([[True, True, True], [False, False, False]])
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        layer = SelfAttention(Heads(D, 4, num_kv_heads, 2)).to(dtype)
        x = torch.randn(B, T, D, dtype=dtype, requires_grad=True)
        y = layer(x, padding_mask(valid))
        assert torch.equal(y[1], layer.output.bias.expand(T, D))
        y.float().square().sum().backward()
        assert x.grad.isfinite().all()
        assert not x.grad[1].any()
        assert all(p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("heads", [Heads(3, 2, 1, 2), Heads(3, 2, 1, 2, AttentionBias.none, norm_eps=0.1)])
def test_the_gradients_are_those_of_finite_differences(heads):
    torch.manual_seed(1)
    own, other = SelfAttention(heads).double(), CrossAttention(heads).double()
    mask = torch.tensor([[[[True, True, False]]], [[[False, False, False]]]])
    x = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: own(x, mask), (x,))
    torch.autograd.gradcheck(lambda x, memory: other(x, other.keys_values(memory), mask), (x, memory))
