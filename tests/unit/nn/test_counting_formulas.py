"""The work of attention and feed-forward network is what the formulas say: multiply-adds as torch counts them."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from seq2seq.nn.attention import SelfAttention, attention_weights, merge_heads
from seq2seq.nn.feed_forward import FeedForward

B, T, D, H, F = 2, 6, 8, 2, 12


def multiply_adds(work):
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("length", [T, 2 * T])
def test_scores_and_context_take_two_b_t_squared_d_and_the_scores_b_h_t_squared_numbers(length):
    layer, x = SelfAttention(D, H), torch.randn(B, length, D)
    query, key, value = layer.project(x)
    assert attention_weights(query, key, None).numel() == B * H * length**2
    work = multiply_adds(lambda: merge_heads(attention_weights(query, key, None) @ value))
    assert work == 2 * B * length**2 * D


def test_twice_the_length_takes_four_times_the_scores():
    short, long = (SelfAttention(D, H).weights(torch.randn(B, n * T, D), None).numel() for n in (1, 2))
    assert long == 4 * short


def test_the_feed_forward_network_takes_two_b_t_d_f():
    network, x = FeedForward(D, F), torch.randn(B, T, D)
    assert multiply_adds(lambda: network(x)) == 2 * B * T * D * F


def test_the_projections_take_four_b_t_d_squared():
    layer, x = SelfAttention(D, H), torch.randn(B, T, D)
    assert multiply_adds(lambda: layer.output(merge_heads(layer.project(x)[0]))) == 4 * B * T * D * D
