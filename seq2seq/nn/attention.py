"""Multi-head, grouped-query and multi-query attention, over one's own sequence and over another one.

Shapes on the way (B sentences, T queries, S keys, H query heads and G key/value heads of width K):

    x               [B, T, D]
    q               [B, T, H*K]  ->  [B, H, T, K]
    k, v            [B, S, G*K]  ->  [B, G, S, K]    each of them serves H / G query heads
    q k^T / sqrt(K) [B, H, T, S]     rows are queries, columns are keys; the mask comes before the softmax
    softmax         [B, H, T, S]     over keys, each row sums to 1
    weights v       [B, H, T, K]  ->  heads side by side [B, T, H*K]  ->  output projection [B, T, D]

Source:
    Vaswani et al. 2017, arXiv:1706.03762, section 3.2 (projections have biases, as in the authors' later code);
    multi-query: Shazeer 2019, arXiv:1911.02150; grouped-query: Ainslie et al. 2023, arXiv:2305.13245.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from seq2seq.config import AttentionBias
from seq2seq.nn.cache import Cache, KeyValue, Layout
from seq2seq.nn.cpu_attention import attend, separate_heads, suits
from seq2seq.nn.cpu_linear import linear
from seq2seq.nn.dropout import draws_bytes
from seq2seq.nn.norm import RMSNorm
from seq2seq.nn.rotary import Rotation
from seq2seq.nn.varlen import PackedMask, attend_packed
from seq2seq.shapes import Bool, Float, Tensor


@dataclass(frozen=True)
class Heads:
    """Numbers and widths of an attention layer's heads, and what its projections have.

    Raises:
        ValueError: if the query heads are not a multiple of the key/value heads.
    """

    d_model: int
    """Width D."""
    num_heads: int
    """Query heads H."""
    num_kv_heads: int
    """Key/value heads G."""
    d_head: int
    """Width K."""
    bias: AttentionBias = AttentionBias.all
    """Which projections have biases."""
    norm_eps: float | None = None
    """RMSNorm on each head's queries and keys, with this eps; None for no norm."""
    dropout: float = 0.0
    """Probability that an attention weight is dropped in training."""

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads={self.num_heads} is not divisible by num_kv_heads={self.num_kv_heads}; "
                "choose num_heads as a multiple of num_kv_heads"
            )

    @staticmethod
    def plain(d_model: int, num_heads: int, dropout: float = 0.0) -> "Heads":
        """The paper's: H heads of width D / H, for queries, keys and values alike.

        Raises:
            ValueError: if D is not divisible by H.
        """
        if d_model % num_heads:
            raise ValueError(
                f"d_model={d_model} is not divisible by num_heads={num_heads}; "
                "choose d_model as a multiple of num_heads"
            )
        return Heads(d_model, num_heads, num_heads, d_model // num_heads, dropout=dropout)

    @property
    def query_width(self) -> int:
        """H * K."""
        return self.num_heads * self.d_head

    @property
    def kv_width(self) -> int:
        """G * K."""
        return self.num_kv_heads * self.d_head

    @property
    def grouped(self) -> bool:
        """Whether several query heads share a key/value head."""
        return self.num_kv_heads != self.num_heads

    @property
    def input_bias(self) -> bool:
        """Whether the projections of queries, keys and values have biases."""
        return self.bias is not AttentionBias.none

    @property
    def output_bias(self) -> bool:
        """Whether the projection of the heads has a bias."""
        return self.bias is AttentionBias.all


def split_heads(x: Float[Tensor, "B T HK"], num_heads: int) -> Float[Tensor, "B H T K"]:
    """Heads as a dimension of their own."""
    batch, length, width = x.shape
    return x.view(batch, length, num_heads, width // num_heads).transpose(1, 2)


def merge_heads(x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B T HK"]:
    """Heads side by side again."""
    return x.transpose(1, 2).flatten(2)


def by_sentence(x: Float[Tensor, "BW H T K"], num_sentences: int) -> Float[Tensor, "B WT H K"]:
    """All positions of a sentence's W rows in a row, heads last."""
    rows, heads, length, width = x.shape
    return x.transpose(1, 2).reshape(num_sentences, rows // max(1, num_sentences) * length, heads, width)


def attention_weights(
    query: Float[Tensor, "B H T K"], key: Float[Tensor, "B G S K"], mask: Bool[Tensor, "#B #H #T S"] | None
) -> Float[Tensor, "B H T S"]:
    """softmax(q k^T / sqrt(K)) over the keys, written out: for looking at, not for speed.

    A query that may attend to nothing has all weights 0, as in torch's kernels, instead of NaN.
    """
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if mask is None:
        return scores.softmax(-1)
    weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
    return weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)


class _Attention(nn.Module):
    """What both kinds of attention do with queries, keys and values."""

    heads: Heads

    def _separate(self, projected: Float[Tensor, "B T _"], nums: tuple[int, ...]) -> tuple[Tensor, ...]:
        """Queries, keys or values that stand side by side, of so many heads each, as tensors [B, heads, T, K]."""
        if self.training and draws_bytes(projected):
            return separate_heads(projected, nums)
        parts = torch.split(projected, [num * self.heads.d_head for num in nums], dim=-1)
        return tuple(split_heads(part, num) for part, num in zip(parts, nums, strict=True))

    def _attend(
        self,
        query: Float[Tensor, "B H T K"],
        source: KeyValue,
        mask: Bool[Tensor, "#B 1 #T S"] | None,
        causal: bool = False,
    ) -> Float[Tensor, "B T HK"]:
        """The values seen by each query, heads side by side."""
        dropout = self.heads.dropout if self.training else 0.0
        if self.training and suits(query, source.key.shape[2], dropout):
            return attend(query, source.key, source.value, mask, causal, dropout)
        context = scaled_dot_product_attention(
            query,
            source.key,
            source.value,
            mask,
            dropout_p=dropout,
            is_causal=causal,
            enable_gqa=self.heads.grouped,
        )
        return merge_heads(context)


class SelfAttention(_Attention):
    """Each position looks at positions of its own sequence.

    Args:
        heads: Numbers and widths. Queries, keys and values come from one product with `query_key_value`
            [(H + 2G) * K, D]: queries first, then keys, then values.
    """

    def __init__(self, heads: Heads) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(heads.d_model, heads.query_width + 2 * heads.kv_width, bias=heads.input_bias)
        self.output = nn.Linear(heads.query_width, heads.d_model, bias=heads.output_bias)
        self.query_norm, self.key_norm = _head_norm(heads), _head_norm(heads)

    def project(
        self, x: Float[Tensor, "B T D"], rotation: Rotation | None = None, layout: Layout | None = None
    ) -> tuple[Float[Tensor, "B2 H T K"], Float[Tensor, "B2 G T K"], Float[Tensor, "B2 G T K"]]:
        """Queries, keys and values, from one product; queries and keys normed and turned where the model does that.

        With a layout of the rows they are those of its places, and so is the rotation.
        """
        heads = self.heads
        projected = linear(x, self.query_key_value)
        if layout is not None:
            projected = projected.index_select(0, layout.row_at)
        query, key, value = self._separate(projected, (heads.num_heads, heads.num_kv_heads, heads.num_kv_heads))
        if heads.norm_eps is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if rotation is not None:
            query, key = rotation.turn(query), rotation.turn(key)
        return query, key, value

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "#B 1 #T T"] | PackedMask | None = None,
        causal: bool = False,
        rotation: Rotation | None = None,
        scale: float = 1.0,
    ) -> Float[Tensor, "B T D"]:
        """All positions at once.

        Args:
            x: The sequence.
            mask: True where a key may be attended to; not together with `causal`. With a `PackedMask`, `x` is one row.
            causal: No position attends to a later one.
            rotation: Of the positions, with rotary positions.
            scale: Multiplies the output, as in `linear`.
        """
        query, key, value = self.project(x, rotation)
        if isinstance(mask, PackedMask):
            context = merge_heads(attend_packed(query, key, value, mask, causal))
        else:
            context = self._attend(query, KeyValue(key, value), mask, causal)
        return linear(context, self.output, scale)

    def step(
        self,
        x: Float[Tensor, "R T D"],
        cache: Cache,
        layer: int,
        mask: Bool[Tensor, "#B 1 #Q C"] | None = None,
        layout: Layout | None = None,
        rotation: Rotation | None = None,
    ) -> tuple[Float[Tensor, "R T D"], Cache]:
        """The next T positions of a causal sequence, given the keys and values of those before them.

        W rows of a sentence are W * T queries over its pool, as in `CrossAttention`.

        Args:
            x: The new positions.
            cache: Keys and values so far.
            layer: Which of the cache's layers is this one's.
            mask: Which of all entries, the new ones included, each new position may attend to; None for all of them,
                which is right for one new position only.
            layout: Where the rows stand by sentence; None for sentence by sentence, and equally many of each.
            rotation: Of the new positions, with rotary positions, as `layout` puts them.

        Returns:
            The outputs of the new positions, and the cache with their keys and values set.
        """
        query, key, value = (by_sentence(part, cache.num_sentences) for part in self.project(x, rotation, layout))
        cache = cache.put(layer, key, value)
        seen = cache.seen(layer, cache.length + key.shape[1])
        # is_causal would align one query with key 0, so it is never used here
        context = scaled_dot_product_attention(
            query.transpose(1, 2), seen.key, seen.value, mask, enable_gqa=self.heads.grouped
        )
        num_rows = len(x) if layout is None else len(layout.row_at)
        rows = context.transpose(1, 2).reshape(num_rows, x.shape[1], self.heads.query_width)
        return self.output(rows if layout is None else rows.index_select(0, layout.place_of)), cache

    def weights(
        self, x: Float[Tensor, "B T D"], mask: Bool[Tensor, "#B 1 #T T"] | None, rotation: Rotation | None = None
    ) -> Float[Tensor, "B H T T"]:
        """The attention weights of a full pass."""
        query, key, _ = self.project(x, rotation)
        return attention_weights(query, key, mask)


class CrossAttention(_Attention):
    """Each target position looks at all source positions. Positions are not told here again.

    Args:
        heads: Numbers and widths. Keys and values come from one product with `key_value` [2 * G * K, D].
    """

    def __init__(self, heads: Heads) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(heads.d_model, heads.query_width, bias=heads.input_bias)
        self.key_value = nn.Linear(heads.d_model, 2 * heads.kv_width, bias=heads.input_bias)
        self.output = nn.Linear(heads.query_width, heads.d_model, bias=heads.output_bias)
        self.query_norm, self.key_norm = _head_norm(heads), _head_norm(heads)

    def keys_values(self, memory: Float[Tensor, "B S D"]) -> KeyValue:
        """Keys and values of the source: computed once a sentence."""
        key, value = self._separate(linear(memory, self.key_value), (self.heads.num_kv_heads, self.heads.num_kv_heads))
        return KeyValue(self.key_norm(key), value)

    def queries(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T K"]:
        """Queries of target positions."""
        (query,) = self._separate(linear(x, self.query), (self.heads.num_heads,))
        return self.query_norm(query)

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        source: KeyValue,
        mask: Bool[Tensor, "B 1 1 S"] | PackedMask,
        scale: float = 1.0,
    ) -> Float[Tensor, "R T D"]:
        """All target positions at once, of R = B * W rows: W beams of each sentence share its keys and values.

        The beams' positions become further queries of the one sentence, [B, H, W*T, K], so nothing is copied. With a
        `PackedMask`, `x` and the source are one row each. The output is multiplied by `scale`, as in `linear`.
        """
        if isinstance(mask, PackedMask):
            context = merge_heads(attend_packed(self.queries(x), source.key, source.value, mask))
            return linear(context, self.output, scale)
        num_sentences = source.key.shape[0]
        num_queries = x.shape[0] // max(1, num_sentences) * x.shape[1]  # a rank may be given a batch without sentences
        query = self.queries(x.reshape(num_sentences, num_queries, x.shape[2]))
        context = self._attend(query, source, mask).reshape(*x.shape[:2], self.heads.query_width)
        return linear(context, self.output, scale)

    def step(
        self,
        x: Float[Tensor, "R T D"],
        source: KeyValue,
        mask: Bool[Tensor, "B 1 1 S"],
        layout: Layout | None,
    ) -> Float[Tensor, "R T D"]:
        """The next target positions of rows that may belong to sentences in any order and number, as `layout` says."""
        if layout is None:
            return self(x, source, mask)
        num_sentences, num_queries = source.key.shape[0], layout.width * x.shape[1]
        projected = self.query(x).index_select(0, layout.row_at).view(num_sentences, num_queries, -1)
        query = self.query_norm(split_heads(projected, self.heads.num_heads))
        context = self._attend(query, source, mask).view(len(layout.row_at), x.shape[1], self.heads.query_width)
        return self.output(context.index_select(0, layout.place_of))

    def weights(
        self, x: Float[Tensor, "B T D"], source: KeyValue, mask: Bool[Tensor, "B 1 1 S"]
    ) -> Float[Tensor, "B H T S"]:
        """The attention weights of all target positions over the source."""
        return attention_weights(self.queries(x), source.key, mask)

    def step_weights(
        self,
        x: Float[Tensor, "R T D"],
        source: KeyValue,
        mask: Bool[Tensor, "B 1 1 S"],
        layout: Layout | None,
    ) -> Float[Tensor, "R H T S"]:
        """The attention weights of the next target positions, of rows as in `step`."""
        num_sentences, rows = source.key.shape[0], x if layout is None else x.index_select(0, layout.row_at)
        width = len(rows) // num_sentences
        weights = self.weights(rows.reshape(num_sentences, width * x.shape[1], x.shape[2]), source, mask)
        weights = weights.view(*weights.shape[:2], width, x.shape[1], -1).transpose(1, 2).flatten(0, 1)
        return weights if layout is None else weights.index_select(0, layout.place_of)


def _head_norm(heads: Heads) -> nn.Module:
    """The norm over a head's width, or nothing."""
    return nn.Identity() if heads.norm_eps is None else RMSNorm(heads.d_head, heads.norm_eps)
