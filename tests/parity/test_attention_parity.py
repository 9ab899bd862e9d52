"""Attention by torch's kernels equals loops over sentences, heads, queries and keys, written here.

The inputs bite: padded rows, a fully masked row, T != S. float64, tolerance 1e-12.
"""

import math

import pytest
import torch

from seq2seq.nn.attention import CrossAttention, Heads, SelfAttention
from seq2seq.nn.masks import causal_mask, padding_mask

B, S, T, D, H, K, W = 3, 5, 4, 8, 2, 4, 3
TOLERANCE = {"atol": 1e-12, "rtol": 0}
VALID = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]], dtype=torch.bool)


def project(linear, part, num_parts, vector):
    """One of the matrices that are stacked in a Linear, and its bias, applied to one vector."""
    weight, bias = linear.weight.chunk(num_parts)[part], linear.bias.chunk(num_parts)[part]
    return weight @ vector + bias


def looped(query_of, key_of, value_of, output, x, memory, allowed):
    """Outputs [B, T, D] and weights [B, H, T, S], one number at a time.

    Args:
        query_of, key_of, value_of: Turn one vector of width D into one of width H * K.
        output: The layer's last Linear.
        x: Queries come from here.
        memory: Keys and values come from here.
        allowed: Says for sentence, query and key whether the one may attend to the other.
    """
    out = torch.zeros_like(x)
    weights = torch.zeros(x.shape[0], H, x.shape[1], memory.shape[1], dtype=x.dtype)
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            query, context = query_of(x[b, t]), []
            for h in range(H):
                columns = slice(h * K, (h + 1) * K)
                keys = [s for s in range(memory.shape[1]) if allowed(b, t, s)]
                scores = [float(query[columns] @ key_of(memory[b, s])[columns]) / math.sqrt(K) for s in keys]
                total = sum(math.exp(score) for score in scores)
                for s, score in zip(keys, scores, strict=True):
                    weights[b, h, t, s] = math.exp(score) / total
                context.append(
                    sum(
                        (weights[b, h, t, s] * value_of(memory[b, s])[columns] for s in keys),
                        start=torch.zeros(K, dtype=x.dtype),
                    )
                )
            out[b, t] = output.weight @ torch.cat(context) + output.bias
    return out, weights


def looped_self(layer, x, allowed):
    parts = [lambda vector, part=part: project(layer.query_key_value, part, 3, vector) for part in range(3)]
    return looped(*parts, layer.output, x, x, allowed)


def looped_cross(layer, x, memory, allowed):
    return looped(
        lambda vector: project(layer.query, 0, 1, vector),
        lambda vector: project(layer.key_value, 0, 2, vector),
        lambda vector: project(layer.key_value, 1, 2, vector),
        layer.output,
        x,
        memory,
        allowed,
    )


@pytest.fixture
def x():
    torch.manual_seed(1)
    return torch.randn(B, T, D, dtype=torch.float64)


@pytest.fixture
def memory():
    torch.manual_seed(2)
    return torch.randn(B, S, D, dtype=torch.float64)


@pytest.fixture
def own():
    torch.manual_seed(3)
    return SelfAttention(Heads.plain(D, H)).double().eval().requires_grad_(False)


@pytest.fixture
def other():
    torch.manual_seed(4)
    return CrossAttention(Heads.plain(D, H)).double().eval().requires_grad_(False)


def test_self_attention_with_padding_and_a_fully_masked_row(own, memory):
    expected, weights = looped_self(own, memory, lambda b, t, s: bool(VALID[b, s]))
    torch.testing.assert_close(own(memory, padding_mask(VALID)), expected, **TOLERANCE)
    torch.testing.assert_close(own.weights(memory, padding_mask(VALID)), weights, **TOLERANCE)


def test_self_attention_without_a_mask(own, memory):
    expected, weights = looped_self(own, memory, lambda b, t, s: True)
    torch.testing.assert_close(own(memory), expected, **TOLERANCE)
    torch.testing.assert_close(own.weights(memory, None), weights, **TOLERANCE)


def test_causal_self_attention(own, x):
    expected, weights = looped_self(own, x, lambda b, t, s: s <= t)
    torch.testing.assert_close(own(x, causal=True), expected, **TOLERANCE)
    torch.testing.assert_close(own.weights(x, causal_mask(T)), weights, **TOLERANCE)


@pytest.mark.parametrize("sizes", [[1, 1, 1, 1], [4], [3, 1], [1, 3], [2, 2]])
def test_causal_self_attention_in_steps(own, x, sizes):
    expected, _ = looped_self(own, x, lambda b, t, s: s <= t)
    cache, length, outputs = None, 0, []
    for size in sizes:
        output, cache = own.step(x[:, length : length + size], cache, length)
        outputs.append(output)
        length += size
    torch.testing.assert_close(torch.cat(outputs, dim=1), expected, **TOLERANCE)


def test_cross_attention_with_padding_and_a_fully_masked_source(other, x, memory):
    expected, weights = looped_cross(other, x, memory, lambda b, t, s: bool(VALID[b, s]))
    source = other.keys_values(memory)
    torch.testing.assert_close(other(x, source, padding_mask(VALID)), expected, **TOLERANCE)
    torch.testing.assert_close(other.weights(x, source, padding_mask(VALID)), weights, **TOLERANCE)


@pytest.mark.parametrize("length", [1, 2])
def test_cross_attention_of_several_beams_over_one_copy_of_the_source(other, memory, length):
    x = torch.randn(B * W, length, D, dtype=torch.float64)
    copies, valid = memory.repeat_interleave(W, dim=0), VALID.repeat_interleave(W, dim=0)
    expected, _ = looped_cross(other, x, copies, lambda b, t, s: bool(valid[b, s]))
    torch.testing.assert_close(other(x, other.keys_values(memory), padding_mask(VALID)), expected, **TOLERANCE)


def test_the_gradients_are_those_of_the_written_out_softmax(own, memory):
    kernel, written_out = memory.clone().requires_grad_(), memory.clone().requires_grad_()
    mask = padding_mask(VALID)
    own(kernel, mask).square().sum().backward()
    _, _, value = own.project(written_out)
    context = (own.weights(written_out, mask) @ value).transpose(1, 2).flatten(2)
    own.output(context).square().sum().backward()
    torch.testing.assert_close(kernel.grad, written_out.grad, atol=1e-10, rtol=0)
    assert kernel.grad.abs().max() > 0.1
