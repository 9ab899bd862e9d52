"""The work of attention and feed-forward network is what the formulas say: multiply-adds as torch counts them."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from seq2seq.nn.attention import CrossAttention, Heads, SelfAttention, attention_weights, merge_heads
from seq2seq.nn.feed_forward import FeedForward

B, S, T, D, H, G, K, F = 2, 5, 6, 16, 4, 2, 3, 12


def multiply_adds(work):
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("length", [T, 2 * T])
def test_scores_and_context_take_two_b_t_squared_d_and_the_scores_b_h_t_squared_numbers(length):
    layer, x = SelfAttention(Heads.plain(D, H)), torch.randn(B, length, D)
    query, key, value = layer.project(x)
    assert attention_weights(query, key, None).numel() == B * H * length**2
    work = multiply_adds(lambda: merge_heads(attention_weights(query, key, None) @ value))
    assert work == 2 * B * length**2 * D


def test_twice_the_length_takes_four_times_the_scores():
    layer = SelfAttention(Heads.plain(D, H))
    short, long = (layer.weights(torch.randn(B, n * T, D), None).numel() for n in (1, 2))
    assert long == 4 * short


@pytest.mark.parametrize(("gated", "products"), [(False, 2), (True, 3)])
def test_the_feed_forward_network_takes_two_b_t_d_f_and_with_a_gate_three(gated, products):
    network, x = FeedForward(D, F, gated=gated), torch.randn(B, T, D)
    assert multiply_adds(lambda: network(x)) == products * B * T * D * F


def test_the_projections_take_four_b_t_d_squared():
    layer, x = SelfAttention(Heads.plain(D, H)), torch.randn(B, T, D)
    assert multiply_adds(lambda: layer.output(merge_heads(layer.project(x)[0]))) == 4 * B * T * D * D


def test_fewer_key_value_heads_make_the_projections_cheaper_and_the_scores_not():
    layer, x = SelfAttention(Heads(D, H, G, K)), torch.randn(B, T, D)
    projections = 2 * B * T * D * H * K + 2 * B * T * D * G * K
    assert multiply_adds(lambda: layer.project(x)) == projections - B * T * D * H * K
    assert multiply_adds(lambda: layer(x)) == projections + 2 * B * T**2 * H * K


def test_cross_attention_projects_the_source_once_and_scores_t_times_s():
    layer, x, memory = CrossAttention(Heads(D, H, G, K)), torch.randn(B, T, D), torch.randn(B, S, D)
    source = layer.keys_values(memory)
    mask = torch.ones(B, 1, 1, S, dtype=torch.bool)
    assert multiply_adds(lambda: layer.keys_values(memory)) == 2 * B * S * D * G * K
    assert multiply_adds(lambda: layer(x, source, mask)) == 2 * B * T * D * H * K + 2 * B * T * S * H * K
