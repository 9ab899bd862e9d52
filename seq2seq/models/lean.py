"""A decode step with as little around its products as can be: what `Decoder.step` computes, for one new position a row.

The products of a step with few rows are so small that the calls of modules, shapes and views between them take as long.
Here a layer is one function over what its modules hold. The modules themselves are the slow twin, and do what is not
written here: several positions at once, rotary positions, norms of queries and keys, attention that is watched.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn
from torch.nn.functional import embedding, scaled_dot_product_attention

from seq2seq.models.decoder import Decoder
from seq2seq.nn.block import CrossBlock
from seq2seq.nn.cache import Cache, DecoderState, KeyValue, Layout
from seq2seq.nn.masks import additive
from seq2seq.nn.positions import SinusoidalPositions
from seq2seq.shapes import Float, Int, Tensor

Function = Callable[[Tensor], Tensor]


def direct(module: nn.Module) -> Function:
    """What the module computes, without what a call of a module does besides."""
    if isinstance(module, nn.LayerNorm):
        shape = tuple(module.normalized_shape)
        # not the function of torch.nn.functional, which looks for overrides at each call
        return partial(torch.layer_norm, normalized_shape=shape, weight=module.weight, bias=module.bias, eps=module.eps)
    function: Function = module.forward
    return function


class LeanDecoder:
    """The steps of a decoder whose modules are not replaced by others.

    Args:
        decoder: Whose steps they are.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._embedding = decoder.embedding
        self._layers = [_LeanLayer.of(layer) for layer in decoder.blocks()]
        self._final_norm = None if isinstance(decoder.final_norm, nn.Identity) else direct(decoder.final_norm)

    @staticmethod
    def suits(decoder: Decoder) -> bool:
        """Whether this is a decoder that it can be done for."""
        return decoder.rotary is None and all(layer.self_attention.heads.norm_eps is None for layer in decoder.blocks())

    def step(self, tokens: Int[Tensor, "R 1"], state: DecoderState) -> tuple[Float[Tensor, "R 1 D"], DecoderState]:
        """The vectors of the next target position, and the state after it. The given state must not be used again."""
        history, mask = state.history.prepare(len(tokens), 1, tokens.device)
        x = self._embedded(tokens, state.length)
        cache, added = history.cache, additive(mask, x.dtype)
        for number, layer in enumerate(self._layers):
            x, cache = layer.step(x, cache, number, added, state.of_source(number), state.cross_mask, history.layout)
        if self._final_norm is not None:
            x = self._final_norm(x)
        history = history.after(cache, 1, mask)
        return x[:, None], replace(state, history=history, length=state.length + 1)

    def _embedded(self, tokens: Int[Tensor, "R 1"], position: int) -> Float[Tensor, "R D"]:
        """The vectors of pieces that stand at the same position."""
        rows, positions = self._embedding.rows.weight, self._embedding.positions
        x = embedding(tokens[:, 0], rows)
        if positions is None:
            return x * self._embedding.scale
        if isinstance(positions, SinusoidalPositions):
            table = positions.until(position + 1, x)
        else:
            positions.check(position + 1)
            table = positions.table.weight
        return torch.add(table[position], x, alpha=self._embedding.scale)


@dataclass(frozen=True)
class _LeanLayer:
    """What one layer holds."""

    num_heads: int
    num_kv_heads: int
    query_width: int
    is_pre: bool
    scale: float
    query_key_value: Function
    output: Function
    norm: Function
    cross_query: Function
    cross_output: Function
    cross_norm: Function
    inner: Function
    activation: Function
    gated: bool
    outer: Function
    feed_forward_norm: Function

    @staticmethod
    def of(layer: CrossBlock) -> "_LeanLayer":
        own, cross, inside = layer.self_attention, layer.cross_attention, layer.feed_forward
        return _LeanLayer(
            num_heads=own.heads.num_heads,
            num_kv_heads=own.heads.num_kv_heads,
            query_width=own.heads.query_width,
            is_pre=layer.residual.is_pre,
            scale=layer.residual.scale,
            query_key_value=direct(own.query_key_value),
            output=direct(own.output),
            norm=direct(layer.self_attention_norm),
            cross_query=direct(cross.query),
            cross_output=direct(cross.output),
            cross_norm=direct(layer.cross_attention_norm),
            inner=direct(inside.inner),
            activation=inside.activation,
            gated=inside.gated,
            outer=direct(inside.output),
            feed_forward_norm=direct(layer.feed_forward_norm),
        )

    def step(
        self,
        x: Float[Tensor, "R D"],
        cache: Cache,
        number: int,
        mask: Float[Tensor, "B 1 W C"] | None,
        source: KeyValue,
        source_mask: Tensor,
        layout: Layout | None,
    ) -> tuple[Float[Tensor, "R D"], Cache]:
        """One position of every row through the layer."""
        projected = self.query_key_value(self.norm(x) if self.is_pre else x)
        if layout is not None:
            projected = projected.index_select(0, layout.row_at)
        query, key, value = self._by_sentence(projected, cache.num_sentences)
        cache = cache.put(number, key, value)
        seen = cache.seen(number, cache.length + key.shape[1])
        x = self._added(x, self.output(self._attend(query, seen, mask, layout)), self.norm)
        query = self.cross_query(self.cross_norm(x) if self.is_pre else x)
        if layout is not None:
            query = query.index_select(0, layout.row_at)
        query = query.view(len(source_mask), -1, self.num_heads, source.key.shape[3])
        x = self._added(x, self.cross_output(self._attend(query, source, source_mask, layout)), self.cross_norm)
        inner = self.inner(self.feed_forward_norm(x) if self.is_pre else x)
        if self.gated:
            gate, inner = inner.chunk(2, dim=-1)
            inner = self.activation(gate) * inner
        else:
            inner = self.activation(inner)
        return self._added(x, self.outer(inner), self.feed_forward_norm), cache

    def _by_sentence(self, projected: Float[Tensor, "BW _"], num_sentences: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, [B, W, heads, K] each, as views."""
        heads = self.num_heads + 2 * self.num_kv_heads
        by_head = projected.view(num_sentences, -1, heads, self.query_width // self.num_heads)
        first, second = self.num_heads, self.num_heads + self.num_kv_heads
        return by_head[:, :, :first], by_head[:, :, first:second], by_head[:, :, second:]

    def _attend(
        self, query: Float[Tensor, "B W H K"], seen: KeyValue, mask: Tensor | None, layout: Layout | None
    ) -> Float[Tensor, "R HK"]:
        """The values that each row sees, heads side by side."""
        context = scaled_dot_product_attention(
            query.transpose(1, 2), seen.key, seen.value, mask, enable_gqa=self.num_heads != self.num_kv_heads
        )
        rows = context.transpose(1, 2).reshape(-1, self.query_width)
        return rows if layout is None else rows.index_select(0, layout.place_of)

    def _added(self, x: Float[Tensor, "R D"], out: Float[Tensor, "R D"], norm: Function) -> Float[Tensor, "R D"]:
        """Input and output of a sublayer together."""
        if self.scale != 1.0:
            x = self.scale * x
        return x + out if self.is_pre else norm(x + out)
