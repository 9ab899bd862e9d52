"""Rotary positions equal those of `transformers`: the frequencies of each scaling, and the turn of queries and keys."""

import pytest
import torch

from seq2seq.config import RopeConfig, RopeScaling
from seq2seq.nn.positions import Places
from seq2seq.nn.rotary import RotaryPositions, scaled_frequencies

HEADS, K = 3, 64
MORE = {"original_positions": 512}
CONFIGS = [
    RopeConfig(base=500_000.0, scaling=RopeScaling.linear, factor=4.0),
    RopeConfig(base=500_000.0, scaling=RopeScaling.llama3, factor=8.0, original_positions=8192),
    RopeConfig(scaling=RopeScaling.llama3, factor=3.0, low_freq_factor=2.0, high_freq_factor=5.0, **MORE),
    RopeConfig(base=1e6, scaling=RopeScaling.yarn, factor=4.0, original_positions=32_768),
    RopeConfig(scaling=RopeScaling.yarn, factor=16.0, beta_fast=20.0, beta_slow=3.0, attention_factor=0.9, **MORE),
    RopeConfig(scaling=RopeScaling.yarn, factor=2.0, truncate=False, **MORE),
    RopeConfig(base=50.0, scaling=RopeScaling.yarn, factor=2.0, original_positions=4),
]


def as_theirs(config):
    """Our options under the names that a model's config.json has."""
    theirs = {"rope_type": config.scaling.name, "rope_theta": config.base, "factor": config.factor}
    if config.original_positions is not None:
        theirs["original_max_position_embeddings"] = config.original_positions
    if config.scaling is RopeScaling.llama3:
        theirs |= {"low_freq_factor": config.low_freq_factor, "high_freq_factor": config.high_freq_factor}
    if config.scaling is RopeScaling.yarn:
        theirs |= {"beta_fast": config.beta_fast, "beta_slow": config.beta_slow, "truncate": config.truncate}
        if config.attention_factor is not None:
            theirs["attention_factor"] = config.attention_factor
    return theirs


def their_config(rope):
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=HEADS * K, num_attention_heads=HEADS, max_position_embeddings=131_072, rope_parameters=rope
    )


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.scaling.name)
def test_frequencies_and_factor_of_each_scaling(config):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    theirs, their_factor = ROPE_INIT_FUNCTIONS[config.scaling.name](their_config(as_theirs(config)), "cpu")
    ours, factor = scaled_frequencies(K, config)
    torch.testing.assert_close(ours.float(), theirs, rtol=2e-6, atol=0)  # theirs are computed in float32
    assert factor == pytest.approx(their_factor, rel=1e-12)


@pytest.mark.parametrize("config", [RopeConfig(base=777.0), *CONFIGS[:4]], ids=lambda config: config.scaling.name)
def test_queries_and_keys_are_turned_as_llamas_are(config):
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    rope = {"rope_type": "default", "rope_theta": 777.0} if config.scaling is RopeScaling.none else as_theirs(config)
    index = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]])
    query, key = torch.randn(2, HEADS, 5, K), torch.randn(2, HEADS, 5, K)
    cos, sin = LlamaRotaryEmbedding(their_config(rope))(query, index)
    expected = apply_rotary_pos_emb(query, key, cos, sin)
    rotation = RotaryPositions(K, config)(Places(index, 12), query)
    torch.testing.assert_close(rotation.turn(query), expected[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(rotation.turn(key), expected[1], atol=1e-5, rtol=0)
