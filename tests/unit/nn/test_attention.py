"""seq2seq.nn.attention: the golden numbers, every shape on the way, and what it refuses."""

import math

import pytest
import torch

from seq2seq.nn.attention import CrossAttention, Heads, SelfAttention, attention_weights, merge_heads, split_heads
from seq2seq.nn.masks import causal_mask

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
