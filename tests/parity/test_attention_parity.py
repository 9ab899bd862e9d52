"""Attention by torch's kernels equals loops over sentences, heads, queries and keys, written here.

Multi-head, grouped-query and multi-query; biases on all projections, some or none; heads of a width of their own; norms
on queries and keys; rotary positions. The inputs bite: padded rows, a fully masked row, T != S. float64, to 1e-12.
"""

import dataclasses
import math

import pytest
import torch
from torch import nn

from seq2seq.config import AttentionBias, RopeConfig
from seq2seq.nn.attention import CrossAttention, Heads, SelfAttention
from seq2seq.nn.cache import Cache
from seq2seq.nn.masks import causal_mask, padding_mask
from seq2seq.nn.positions import Places
from seq2seq.nn.rotary import RotaryPositions

B, S, T, D, W, EPS = 3, 5, 4, 8, 3, 0.25
TOLERANCE = {"atol": 1e-12, "rtol": 0}
VALID = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]], dtype=torch.bool)
KINDS = {
    "multi_head": Heads.plain(D, 2),
    "grouped": Heads(D, 4, 2, 2),
    "multi_query": Heads(D, 6, 1, 2, AttentionBias.none),
    "wide_heads": Heads(D, 2, 1, 6, AttentionBias.qkv),
    "normed": Heads(D, 4, 2, 6, AttentionBias.none, norm_eps=EPS),
}


@pytest.fixture(params=KINDS)
def heads(request):
    return KINDS[request.param]


def part_of(linear, start, width, vector):
    """Some rows of a Linear, and of its bias if it has one, applied to one vector."""
    rows = slice(start, start + width)
    projected = linear.weight[rows] @ vector
    return projected if linear.bias is None else projected + linear.bias[rows]


def normed(norm, vector):
    """RMSNorm of one vector, or the vector where there is no norm."""
    if isinstance(norm, nn.Identity):
        return vector
    return norm.weight * vector / math.sqrt(sum(value * value for value in vector.tolist()) / len(vector) + EPS)


def turned(vector, position, base):
    """The vector turned as its position says; as it is without a base."""
    if base is None:
        return vector
    half, result = len(vector) // 2, vector.clone()
    for i in range(half):
        cos, sin = math.cos(position * base ** (-i / half)), math.sin(position * base ** (-i / half))
        result[i] = vector[i] * cos - vector[i + half] * sin
        result[i + half] = vector[i + half] * cos + vector[i] * sin
    return result


def looped(layer, project, x, memory, allowed, base=None):
    """Outputs [B, T, D] and weights [B, H, T, S], one number at a time.

    Args:
        layer: Of which the norms and the output projection are used.
        project: Gives query, key or value (0, 1, 2) of one head for one vector.
        x: Queries come from here.
        memory: Keys and values come from here.
        allowed: Says for sentence, query and key whether the one may attend to the other.
        base: Of rotary positions.
    """
    heads, out = layer.heads, torch.zeros_like(x)
    weights = torch.zeros(x.shape[0], heads.num_heads, x.shape[1], memory.shape[1], dtype=x.dtype)
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            context = []
            for h in range(heads.num_heads):
                shared = h // (heads.num_heads // heads.num_kv_heads)
                query = turned(normed(layer.query_norm, project(0, h, x[b, t])), t, base)
                seen = [s for s in range(memory.shape[1]) if allowed(b, t, s)]
                keys = [turned(normed(layer.key_norm, project(1, shared, memory[b, s])), s, base) for s in seen]
                scores = [float(query @ key) / math.sqrt(heads.d_head) for key in keys]
                total = sum(math.exp(score) for score in scores)
                mixed = torch.zeros(heads.d_head, dtype=x.dtype)
                for s, score in zip(seen, scores, strict=True):
                    weights[b, h, t, s] = math.exp(score) / total
                    mixed += weights[b, h, t, s] * project(2, shared, memory[b, s])
                context.append(mixed)
            out[b, t] = part_of(layer.output, 0, x.shape[2], torch.cat(context))
    return out, weights


def looped_self(layer, x, allowed, base=None):
    heads = layer.heads
    starts = [0, heads.num_heads * heads.d_head, (heads.num_heads + heads.num_kv_heads) * heads.d_head]

    def project(part, head, vector):
        return part_of(layer.query_key_value, starts[part] + head * heads.d_head, heads.d_head, vector)

    return looped(layer, project, x, x, allowed, base)


def looped_cross(layer, x, memory, allowed):
    heads = layer.heads

    def project(part, head, vector):
        if part == 0:
            return part_of(layer.query, head * heads.d_head, heads.d_head, vector)
        start = (part - 1) * heads.num_kv_heads * heads.d_head
        return part_of(layer.key_value, start + head * heads.d_head, heads.d_head, vector)

    return looped(layer, project, x, memory, allowed)


def scrambled(layer, seed):
    """In float64, no weight as it starts: norms neither."""
    torch.manual_seed(seed)
    layer = layer.double().eval().requires_grad_(False)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.6)
    return layer


@pytest.fixture
def x():
    torch.manual_seed(1)
    return torch.randn(B, T, D, dtype=torch.float64)


@pytest.fixture
def memory():
    torch.manual_seed(2)
    return torch.randn(B, S, D, dtype=torch.float64)


@pytest.fixture
def own(heads):
    return scrambled(SelfAttention(heads), 3)


@pytest.fixture
def other(heads):
    return scrambled(CrossAttention(heads), 4)


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


def test_self_attention_with_rotary_positions(own, x):
    base = 50.0
    expected, weights = looped_self(own, x, lambda b, t, s: s <= t, base)
    rotation = RotaryPositions(own.heads.d_head, RopeConfig(base=base))(Places.span(0, T), x)
    torch.testing.assert_close(own(x, causal=True, rotation=rotation), expected, **TOLERANCE)
    torch.testing.assert_close(own.weights(x, causal_mask(T), rotation), weights, **TOLERANCE)


@pytest.mark.parametrize("sizes", [[1, 1, 1, 1], [4], [3, 1], [1, 3], [2, 2]])
@pytest.mark.parametrize("base", [None, 50.0], ids=["added", "rotary"])
def test_causal_self_attention_in_steps(own, x, sizes, base):
    rotary = RotaryPositions(own.heads.d_head, RopeConfig(base=base)) if base is not None else None
    whole = rotary(Places.span(0, T), x) if rotary is not None else None
    expected = own(x, causal=True, rotation=whole)  # which equals the loops, as the tests above say
    cache, length, outputs = Cache(1, len(x)), 0, []
    for size in sizes:
        rotation = rotary(Places.span(length, length + size), x) if rotary is not None else None
        mask = causal_mask(size, length)
        output, cache = own.step(x[:, length : length + size], cache, 0, mask, rotation=rotation)
        outputs.append(output)
        length += size
        cache = dataclasses.replace(cache, length=length)
    torch.testing.assert_close(torch.cat(outputs, dim=1), expected, **TOLERANCE)
    assert cache.seen(0, T).key.shape[1] == own.heads.num_kv_heads


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
    value = value.repeat_interleave(own.heads.num_heads // own.heads.num_kv_heads, dim=1)
    context = (own.weights(written_out, mask) @ value).transpose(1, 2).flatten(2)
    own.output(context).square().sum().backward()
    torch.testing.assert_close(kernel.grad, written_out.grad, atol=1e-10, rtol=0)
    assert kernel.grad.abs().max() > 0.1
