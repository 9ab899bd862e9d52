"""The blocks that every stack is made of: attention and feed-forward, each with its residual and norm."""

from dataclasses import dataclass

from torch import nn

from seq2seq.config import Activation, NormKind, NormPlacement
from seq2seq.nn.attention import CrossAttention, Heads, SelfAttention, attention_weights, by_sentence
from seq2seq.nn.cache import Cache, KeyValue, Layout
from seq2seq.nn.dropout import Dropout
from seq2seq.nn.feed_forward import FeedForward
from seq2seq.nn.norm import Residual, build_norm
from seq2seq.nn.rotary import Rotation
from seq2seq.nn.varlen import PackedMask
from seq2seq.shapes import Bool, Float, Tensor


@dataclass(frozen=True)
class BlockOptions:
    """What all blocks of a stack have in common."""

    heads: Heads
    """Of self- and cross-attention."""
    d_ff: int
    """Inner width F of the feed-forward network."""
    activation: Activation = Activation.relu
    """Its non-linearity."""
    gated: bool = False
    """Whether it has a gate."""
    feed_forward_bias: bool = True
    """Whether it has biases."""
    norm: NormKind = NormKind.layer_norm
    """Kind of norm."""
    norm_placement: NormPlacement = NormPlacement.post
    """Where it stands."""
    norm_eps: float = 1e-5
    """Added to the variance or mean square."""
    residual_scale: float = 1.0
    """Multiplies the input of each sublayer in deepnorm."""
    dropout: float = 0.0
    """On each sublayer's output."""
    activation_dropout: float = 0.0
    """After the non-linearity."""

    def build_norm(self) -> nn.Module:
        """A fresh norm over the model's width."""
        return build_norm(self.norm, self.heads.d_model, self.norm_eps)


class Block(nn.Module):
    """Self-attention, then feed-forward: an encoder's layer, and with causal attention a decoder-only model's.

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.1; norm placements as `seq2seq.nn.norm.Residual` says.
    """

    def __init__(self, options: BlockOptions) -> None:
        super().__init__()
        self.self_attention = SelfAttention(options.heads)
        self.self_attention_norm = options.build_norm()
        self._add_cross_attention(options)
        self.feed_forward = FeedForward(
            options.heads.d_model,
            options.d_ff,
            options.activation,
            options.gated,
            options.feed_forward_bias,
            options.activation_dropout,
        )
        self.feed_forward_norm = options.build_norm()
        self.residual = Residual(options.norm_placement, options.residual_scale)
        self.dropout = Dropout(options.dropout)

    def extra_repr(self) -> str:
        """Where the norms stand, for the printed model."""
        return repr(self.residual)

    def _add_cross_attention(self, options: BlockOptions) -> None:
        """A block with cross-attention adds it here, so that parameters stand in the order in which they are used."""

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "#B 1 #T T"] | PackedMask | None = None,
        causal: bool = False,
        rotation: Rotation | None = None,
    ) -> Float[Tensor, "B T D"]:
        """All positions at once; `mask`, `causal` and `rotation` as in `SelfAttention.forward`."""
        normed, scale = self.residual.before(x, self.self_attention_norm), self.dropout.ahead(x)
        return self.fed_forward(self.attended(x, self.self_attention(normed, mask, causal, rotation, scale), scale))

    def step(
        self,
        x: Float[Tensor, "R T D"],
        cache: Cache,
        layer: int,
        mask: Bool[Tensor, "#B 1 #Q C"] | None = None,
        layout: Layout | None = None,
        rotation: Rotation | None = None,
    ) -> tuple[Float[Tensor, "R T D"], Cache]:
        """The next T positions, and the cache with their keys and values set; `layer` is this block's number in it."""
        normed = self.residual.before(x, self.self_attention_norm)
        attended, cache = self.self_attention.step(normed, cache, layer, mask, layout, rotation)
        return self.fed_forward(self.attended(x, attended)), cache

    def step_weights(
        self,
        x: Float[Tensor, "R T D"],
        cache: Cache,
        layer: int,
        source_mask: Bool[Tensor, "B 1 1 P"],
        layout: Layout | None = None,
        rotation: Rotation | None = None,
    ) -> Float[Tensor, "R H T P"]:
        """How much the next T positions, given to `step`, look at the first P; rows sum to 1 over these."""
        normed = self.residual.before(x, self.self_attention_norm)
        query, _, _ = self.self_attention.project(normed, rotation, layout)
        rows, heads, length, _ = query.shape
        query = by_sentence(query, cache.num_sentences).transpose(1, 2)
        weights = attention_weights(query, cache.seen(layer, source_mask.shape[3]).key, source_mask)
        weights = weights.view(len(weights), heads, -1, length, weights.shape[3]).transpose(1, 2).flatten(0, 1)
        assert len(weights) == rows
        return weights if layout is None else weights.index_select(0, layout.place_of)

    def attended(
        self, x: Float[Tensor, "B T D"], out: Float[Tensor, "B T D"], scale: float = 1.0
    ) -> Float[Tensor, "B T D"]:
        """Input and output of self-attention, which comes multiplied by `scale`, together."""
        return self._added(x, out, self.self_attention_norm, scale)

    def fed_forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """The feed-forward sublayer, with its residual and norm."""
        norm, scale = self.feed_forward_norm, self.dropout.ahead(x)
        return self._added(x, self.feed_forward(self.residual.before(x, norm), scale), norm, scale)

    def _added(
        self, x: Float[Tensor, "B T D"], out: Float[Tensor, "B T D"], norm: nn.Module, scale: float = 1.0
    ) -> Float[Tensor, "B T D"]:
        """Input and output of a sublayer together; the output comes multiplied by `scale`, that of dropout or 1."""
        # in evaluation it would be called to do nothing, which a decode step of a small model feels
        return self.residual.after(x, out, norm, self.dropout if self.training else None, scaled=scale != 1.0)


class CrossBlock(Block):
    """Causal self-attention, cross-attention, feed-forward: a decoder's layer."""

    def _add_cross_attention(self, options: BlockOptions) -> None:
        self.cross_attention = CrossAttention(options.heads)
        self.cross_attention_norm = options.build_norm()

    def forward(  # type: ignore[override]  # the source is needed too
        self,
        x: Float[Tensor, "B T D"],
        source: KeyValue,
        source_mask: Bool[Tensor, "B 1 1 S"] | PackedMask,
        rotation: Rotation | None = None,
    ) -> Float[Tensor, "B T D"]:
        """All target positions at once, none seeing a later one."""
        normed = self.residual.before(x, self.self_attention_norm)
        own, scale = source_mask.own if isinstance(source_mask, PackedMask) else None, self.dropout.ahead(x)
        x = self.attended(x, self.self_attention(normed, own, causal=True, rotation=rotation, scale=scale), scale)
        return self.fed_forward(self.crossed(x, source, source_mask))

    def step(  # type: ignore[override]
        self,
        x: Float[Tensor, "R T D"],
        cache: Cache,
        layer: int,
        mask: Bool[Tensor, "#B 1 #Q C"] | None,
        source: KeyValue,
        source_mask: Bool[Tensor, "B 1 1 S"],
        layout: Layout | None = None,
        rotation: Rotation | None = None,
    ) -> tuple[Float[Tensor, "R T D"], Cache]:
        """The next T positions, and the cache with their keys and values set; `layer` is this block's number in it."""
        normed = self.residual.before(x, self.self_attention_norm)
        attended, cache = self.self_attention.step(normed, cache, layer, mask, layout, rotation)
        x = self.attended(x, attended)
        norm = self.cross_attention_norm
        seen = self.cross_attention.step(self.residual.before(x, norm), source, source_mask, layout)
        return self.fed_forward(self._added(x, seen, norm)), cache

    def step_weights(  # type: ignore[override]
        self,
        x: Float[Tensor, "R T D"],
        cache: Cache,
        layer: int,
        mask: Bool[Tensor, "#B 1 #Q C"] | None,
        source: KeyValue,
        source_mask: Bool[Tensor, "B 1 1 S"],
        layout: Layout | None = None,
        rotation: Rotation | None = None,
    ) -> Float[Tensor, "R H T S"]:
        """How much the next T positions look at the source in `step`, which is to be given the same afterwards."""
        normed = self.residual.before(x, self.self_attention_norm)
        # what this sets in the cache, `step` sets again
        attended, _ = self.self_attention.step(normed, cache, layer, mask, layout, rotation)
        normed = self.residual.before(self.attended(x, attended), self.cross_attention_norm)
        return self.cross_attention.step_weights(normed, source, source_mask, layout)

    def crossed(
        self, x: Float[Tensor, "R T D"], source: KeyValue, source_mask: Bool[Tensor, "B 1 1 S"] | PackedMask
    ) -> Float[Tensor, "R T D"]:
        """The cross-attention sublayer, with its residual and norm."""
        norm, scale = self.cross_attention_norm, self.dropout.ahead(x)
        seen = self.cross_attention(self.residual.before(x, norm), source, source_mask, scale)
        return self._added(x, seen, norm, scale)
