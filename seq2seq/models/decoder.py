"""The decoder: target ids so far and the memory in, one vector for each target position out."""

from collections.abc import Iterator
from typing import cast

from torch import nn

from seq2seq.nn.attention import CrossAttention, SelfAttention
from seq2seq.nn.cache import DecoderState, KeyValue
from seq2seq.nn.dropout import Dropout
from seq2seq.nn.embedding import Embedding
from seq2seq.nn.feed_forward import FeedForward
from seq2seq.nn.masks import padding_mask
from seq2seq.shapes import Bool, Float, Int, Tensor


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention, feed-forward; each added to its input, the sum normalised (Post-LN).

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.1: LayerNorm(x + Sublayer(x)).
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout: float,
        attention_dropout: float,
        activation_dropout: float,
        norm_eps: float,
    ) -> None:
        super().__init__()
        self.self_attention = SelfAttention(d_model, num_heads, attention_dropout)
        self.self_attention_norm = nn.LayerNorm(d_model, norm_eps)
        self.cross_attention = CrossAttention(d_model, num_heads, attention_dropout)
        self.cross_attention_norm = nn.LayerNorm(d_model, norm_eps)
        self.feed_forward = FeedForward(d_model, d_ff, activation_dropout)
        self.feed_forward_norm = nn.LayerNorm(d_model, norm_eps)
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "B T D"], source: KeyValue, source_mask: Bool[Tensor, "B 1 1 S"]
    ) -> Float[Tensor, "B T D"]:
        """All target positions at once, none seeing a later one."""
        x = self.after_self_attention(x, self.self_attention(x, causal=True))
        return self.rest(x, source, source_mask)

    def step(
        self,
        x: Float[Tensor, "R T D"],
        cache: KeyValue | None,
        length: int,
        source: KeyValue,
        source_mask: Bool[Tensor, "B 1 1 S"],
    ) -> tuple[Float[Tensor, "R T D"], KeyValue]:
        """The next T positions, and the cache with them added."""
        attended, cache = self.self_attention.step(x, cache, length)
        return self.rest(self.after_self_attention(x, attended), source, source_mask), cache

    def after_self_attention(
        self, x: Float[Tensor, "B T D"], attended: Float[Tensor, "B T D"]
    ) -> Float[Tensor, "B T D"]:
        """Residual and norm of the first sublayer."""
        return self.self_attention_norm(x + self.dropout(attended))

    def rest(
        self, x: Float[Tensor, "R T D"], source: KeyValue, source_mask: Bool[Tensor, "B 1 1 S"]
    ) -> Float[Tensor, "R T D"]:
        """Cross-attention and feed-forward, with their residuals and norms."""
        x = self.cross_attention_norm(x + self.dropout(self.cross_attention(x, source, source_mask)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class Decoder(nn.Module):
    """Embedding and N decoder layers. A Post-LN stack has no norm after its last layer.

    Target padding needs no mask: it stands to the right, and no real position sees what is on its right.
    """

    def __init__(self, embedding: Embedding, layers: list[DecoderLayer]) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)

    def blocks(self) -> Iterator[DecoderLayer]:
        """The layers, first to last."""
        return cast(Iterator[DecoderLayer], iter(self.layers))

    def forward(
        self, tgt_in: Int[Tensor, "B T"], memory: Float[Tensor, "B S D"], src_valid: Bool[Tensor, "B S"]
    ) -> Float[Tensor, "B T D"]:
        """The vector of every target position, from which the next piece is predicted."""
        x, mask = self.embedding(tgt_in), padding_mask(src_valid)
        for layer in self.blocks():
            x = layer(x, layer.cross_attention.keys_values(memory), mask)
        return x

    def start(self, memory: Float[Tensor, "B S D"], src_valid: Bool[Tensor, "B S"]) -> DecoderState:
        """The state before the first target piece: keys and values of the source, nothing of the target."""
        sources = tuple(layer.cross_attention.keys_values(memory) for layer in self.blocks())
        return DecoderState(0, (), sources, padding_mask(src_valid))

    def step(self, tokens: Int[Tensor, "R T"], state: DecoderState) -> tuple[Float[Tensor, "R T D"], DecoderState]:
        """The vectors of the next T target positions, and the state after them.

        With T > 1 this is a prefill: several known pieces at once. Rows are B * W, beams of a sentence together.
        The given state must not be used again.
        """
        x = self.embedding(tokens, start=state.length)
        before: tuple[KeyValue | None, ...] = state.self_attention or (None,) * len(self.layers)
        after = []
        for layer, cache, source in zip(self.blocks(), before, state.cross_attention, strict=True):
            x, cache = layer.step(x, cache, state.length, source, state.cross_mask)
            after.append(cache)
        length = state.length + tokens.shape[1]
        return x, DecoderState(length, tuple(after), state.cross_attention, state.cross_mask)
