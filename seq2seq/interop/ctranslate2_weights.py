"""Our weights as the variables that CTranslate2 names.

CTranslate2 describes a network by a tree of objects ("specs") whose leaves are arrays: here the leaves are filled. The
arrays are float32 copies, since its quantisation writes into what it is given.

DeepNorm, which CTranslate2 does not have, is expressed in what it has. A block computes LN(a*x + f(x)); when the
residual stream carries z = a*x instead of x, that is LN(z + f(z/a)), a Post-LN block. So the embedding and every norm
but the stack's last give a times as much, and every projection that reads the stream is divided by a.
"""

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from seq2seq.config import RopeConfig, RopeScaling
from seq2seq.models.stack import AnyBlock, Stack
from seq2seq.nn.attention import CrossAttention, SelfAttention
from seq2seq.nn.block import CrossBlock
from seq2seq.nn.feed_forward import FeedForward
from seq2seq.nn.norm import RMSNorm
from seq2seq.nn.positions import LearnedPositions, sinusoids
from seq2seq.nn.rotary import scaled_frequencies
from seq2seq.shapes import Float, Tensor

Array = npt.NDArray[np.float32]


def fill_stack(spec: Any, stack: Stack[AnyBlock], num_positions: int, num_pieces: int) -> None:
    """The embedding, the blocks and the last norm of an encoder or decoder.

    Args:
        spec: A TransformerEncoderSpec or TransformerDecoderSpec of the same shape.
        stack: Where the weights are.
        num_positions: Rows of the table of sinusoids; learned ones have their own number.
        num_pieces: Rows of the embedding that have a piece; those beyond are left out.
    """
    blocks = list(stack.blocks())
    stream = blocks[0].residual.scale
    embedding = stack.embedding
    tables = spec.embeddings if isinstance(spec.embeddings, list) else [spec.embeddings]
    tables[0].weight = _array(embedding.rows.weight[:num_pieces])
    spec.scale_embeddings = float(embedding.scale * stream)
    if isinstance(embedding.positions, LearnedPositions):
        spec.position_encodings.encodings = _array(embedding.positions.table.weight * stream)
    elif embedding.positions is not None:
        table = sinusoids(num_positions, embedding.rows.embedding_dim, embedding.positions.halves)
        spec.position_encodings.encodings = _array(table * stream)
    for index, (block, layer) in enumerate(zip(blocks, spec.layer, strict=True)):
        _fill_self_attention(layer.self_attention, block.self_attention, 1 / stream)
        _fill_norm(layer.self_attention.layer_norm, block.self_attention_norm, stream)
        if isinstance(block, CrossBlock):
            _fill_cross_attention(layer.attention, block.cross_attention, 1 / stream)
            _fill_norm(layer.attention.layer_norm, block.cross_attention_norm, stream)
        _fill_feed_forward(layer.ffn, block.feed_forward, 1 / stream)
        _fill_norm(layer.ffn.layer_norm, block.feed_forward_norm, stream if index + 1 < len(blocks) else 1.0)
    if not isinstance(stack.final_norm, nn.Identity):
        _fill_norm(spec.layer_norm, stack.final_norm)
    if stack.rotary is not None:
        for layer in spec.layer:
            _fill_rotation(layer.self_attention, stack.rotary.d_head, stack.rotary.config)


def fill_output(spec: Any, output: Tensor, bias: Tensor | None, never: list[int], num_pieces: int) -> None:
    """The projection onto the vocabulary.

    Args:
        spec: A LinearSpec.
        output: The [V, D] matrix.
        bias: [V], or None.
        never: Ids that must not be produced: CTranslate2 has no list of them, so their logits are lowered.
        num_pieces: Rows that have a piece; those beyond are left out.
    """
    spec.weight = _array(output[:num_pieces])
    if bias is None and not never:
        return
    lowered = torch.zeros(num_pieces) if bias is None else bias[:num_pieces].detach().float().clone()
    lowered[never] = NEVER
    spec.bias = _array(lowered)


def quantize(spec: Any, quantization: str | None) -> None:
    """Weights in the given format; CTranslate2's own code, but for the factors of rotary positions.

    Those stay float32. In half precision they would turn far positions by other angles.
    """
    rotating = [layer.self_attention for layer in spec.decoder.layer]
    rotating += [layer.self_attention for layer in spec.encoder.layer] if hasattr(spec, "encoder") else []
    kept = [
        (attention, name, copy.copy(getattr(attention, name)))
        for attention in rotating
        for name in ("rotary_scaling_long_factor", "rotary_scaling_short_factor")
        if hasattr(attention, name)
    ]
    spec.optimize(quantization=quantization)
    for attention, name, factors in kept:
        setattr(attention, name, factors)


NEVER = -10000.0
"""A logit so low that its piece has probability 0; within reach of half precision, too."""


def _fill_self_attention(spec: Any, attention: SelfAttention, scale: float) -> None:
    joined, output = spec.linear
    _fill_linear(joined, attention.query_key_value.weight * scale, attention.query_key_value.bias)
    _fill_linear(output, attention.output.weight, attention.output.bias)
    _fill_head_norms(spec, attention)


def _fill_cross_attention(spec: Any, attention: CrossAttention, scale: float) -> None:
    """Keys and values for every query head: CTranslate2 has shared ones in self-attention only."""
    query, key_value, output = spec.linear
    if hasattr(spec, "num_heads_kv"):
        del spec.num_heads_kv
    _fill_linear(query, attention.query.weight * scale, attention.query.bias)
    weight, bias = attention.key_value.weight, attention.key_value.bias
    _fill_linear(key_value, _every_head(weight, attention), None if bias is None else _every_head(bias, attention))
    _fill_linear(output, attention.output.weight, attention.output.bias)
    _fill_head_norms(spec, attention)


def _every_head(stacked: Float[Tensor, "GK2 *D"], attention: CrossAttention) -> Float[Tensor, "HK2 *D"]:
    """Rows of keys and values, each head's repeated for all the query heads that it serves."""
    heads = attention.heads
    by_head = stacked.reshape(2, heads.num_kv_heads, heads.d_head, *stacked.shape[1:])
    return by_head.repeat_interleave(heads.num_heads // heads.num_kv_heads, dim=1).flatten(0, 2)


def _fill_head_norms(spec: Any, attention: SelfAttention | CrossAttention) -> None:
    if attention.heads.norm_eps is not None:
        _fill_norm(spec.q_norm, attention.query_norm)
        _fill_norm(spec.k_norm, attention.key_norm)


def _fill_feed_forward(spec: Any, feed_forward: FeedForward, scale: float) -> None:
    weight, bias = feed_forward.inner.weight * scale, feed_forward.inner.bias
    if feed_forward.gated:
        gate, value = weight.chunk(2)
        gate_bias, value_bias = (None, None) if bias is None else bias.chunk(2)
        _fill_linear(spec.linear_0, gate, gate_bias)
        _fill_linear(spec.linear_0_noact, value, value_bias)
    else:
        _fill_linear(spec.linear_0, weight, bias)
    _fill_linear(spec.linear_1, feed_forward.output.weight, feed_forward.output.bias)


def _fill_rotation(spec: Any, d_head: int, config: RopeConfig) -> None:
    """How far each pair is slowed down, by its own factor, which covers every way of scaling.

    CTranslate2 takes such factors for Phi-3's long contexts, one set for short and one for long texts; both are the
    same here. A factor on queries and keys is one on their product.
    """
    if config.scaling is RopeScaling.none:
        return
    plain, _ = scaled_frequencies(d_head, RopeConfig(base=config.base))
    scaled, factor = scaled_frequencies(d_head, config)
    spec.rotary_scaling_long_factor = spec.rotary_scaling_short_factor = _array(plain / scaled)
    spec.queries_scale = float(factor**2 / d_head**0.5)


def _fill_linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _array(weight)
    if bias is not None:
        spec.bias = _array(bias)


def _fill_norm(spec: Any, norm: nn.Module, scale: float = 1.0) -> None:
    """LayerNorm's or RMSNorm's weight, and the bias that only the former has."""
    assert isinstance(norm, nn.LayerNorm | RMSNorm)
    spec.gamma = _array(norm.weight * scale)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _array(norm.bias * scale)


def _array(tensor: Tensor) -> Array:
    """A float32 copy."""
    return np.array(tensor.detach().cpu().to(torch.float32).numpy(), order="C")
