"""Options of the network."""

from dataclasses import dataclass, field

from seq2seq.config.checks import positive, probability, require
from seq2seq.config.choices import (
    Activation,
    Architecture,
    AttentionBias,
    NormKind,
    NormPlacement,
    PositionKind,
    RopeScaling,
    Tying,
)


@dataclass(frozen=True)
class RopeConfig:
    """Rotary positions: their base, and how they are stretched beyond the length trained on."""

    base: float = 10000.0
    """Pair i of K/2 turns by position * base^(-2i/K)."""
    scaling: RopeScaling = RopeScaling.none
    """Way of stretching."""
    factor: float = 1.0
    """New length over the original one."""
    original_positions: int | None = None
    """Length trained on; needed by yarn and llama3."""
    low_freq_factor: float = 1.0
    """llama3: wavelengths above original_positions / this are stretched wholly."""
    high_freq_factor: float = 4.0
    """llama3: wavelengths below original_positions / this are left alone."""
    beta_fast: float = 32.0
    """yarn: pairs with more turns than this in the original length are left alone."""
    beta_slow: float = 1.0
    """yarn: pairs with fewer turns than this are stretched wholly."""
    attention_factor: float | None = None
    """yarn: scales queries and keys; null is the paper's 0.1 ln(factor) + 1."""
    truncate: bool = True
    """yarn: the ramp between both begins and ends at whole pairs."""

    def __post_init__(self) -> None:
        for name in ("base", "factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow"):
            positive(f"rope.{name}", getattr(self, name))
        if self.original_positions is not None:
            positive("rope.original_positions", self.original_positions)
        if self.attention_factor is not None:
            positive("rope.attention_factor", self.attention_factor)
        require(
            self.scaling in (RopeScaling.none, RopeScaling.linear) or self.original_positions is not None,
            f"rope.scaling={self.scaling.name} needs rope.original_positions, the length that the model was trained on",
        )
        require(
            self.high_freq_factor > self.low_freq_factor,
            f"rope.high_freq_factor={self.high_freq_factor} is not more than "
            f"rope.low_freq_factor={self.low_freq_factor}",
        )
        require(
            self.beta_fast > self.beta_slow,
            f"rope.beta_fast={self.beta_fast} is not more than rope.beta_slow={self.beta_slow}",
        )


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and switches of the network. The defaults are the original Transformer's (Vaswani et al. 2017)."""

    d_model: int
    """Width D of the residual stream."""
    num_heads: int
    """Query heads H."""
    d_ff: int
    """Inner width F of the feed-forward networks."""
    num_encoder_layers: int
    """Blocks in the encoder; 0 in a decoder-only model."""
    num_decoder_layers: int
    """Blocks in the decoder."""
    architecture: Architecture = Architecture.encoder_decoder
    """Encoder and decoder, or decoder only."""
    num_kv_heads: int | None = None
    """Key/value heads G, dividing `num_heads`: fewer is grouped-query, 1 multi-query; null is as many as queries."""
    d_head: int | None = None
    """Width K of a head; null is D / H, which must then be whole."""
    encoder_d_ff: int | None = None
    """Feed-forward width of the encoder, if not `d_ff`."""
    decoder_d_ff: int | None = None
    """Feed-forward width of the decoder, if not `d_ff`."""
    dropout: float = 0.1
    """On the embeddings' sum and on each sublayer's output, before it is added (paper, section 5.4)."""
    attention_dropout: float = 0.0
    """On the attention weights. Not in the paper; takes attention off its fused kernel on CPUs."""
    activation_dropout: float = 0.0
    """After the feed-forward network's non-linearity. Not in the paper."""
    tying: Tying = Tying.three_way
    """Three-way (paper, section 3.4) needs a joint vocabulary; two-way ties target embedding and output."""
    norm: NormKind = NormKind.layer_norm
    """Kind of norm."""
    norm_placement: NormPlacement = NormPlacement.post
    """Where it stands."""
    norm_eps: float = 1e-5
    """Added to the variance, or to the mean square."""
    qk_norm: bool = False
    """RMSNorm on each head's queries and keys, before positions turn them (Qwen 3)."""
    positions: PositionKind = PositionKind.sinusoidal
    """How order is told."""
    max_positions: int | None = None
    """Rows of the table of learned positions, which it needs; the other kinds go on for ever."""
    rope: RopeConfig = field(default_factory=RopeConfig)
    """Rotary positions."""
    scale_embedding: bool = True
    """Embedding rows times sqrt(D) (paper, section 3.4)."""
    attention_bias: AttentionBias = AttentionBias.all
    """Biases of the attention's projections."""
    feed_forward_bias: bool = True
    """Biases of the feed-forward network."""
    output_bias: bool = False
    """A bias on the logits (Marian)."""
    activation: Activation = Activation.relu
    """Feed-forward non-linearity."""
    gated: bool = False
    """A gate in the feed-forward network: with silu it is SwiGLU, with gelu GEGLU (Shazeer 2020)."""
    prefix_lm: bool = False
    """Decoder-only: positions of the source see the whole source, not only what is before them."""
    vocab_multiple: int = 1
    """Embedding rows are rounded up to a multiple of this; rows beyond the tokenizer are never produced."""

    def __post_init__(self) -> None:
        for name in ("d_model", "num_heads", "d_ff", "num_decoder_layers", "vocab_multiple"):
            positive(name, getattr(self, name))
        for name in ("num_kv_heads", "d_head", "encoder_d_ff", "decoder_d_ff", "max_positions"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            probability(name, getattr(self, name))
        positive("norm_eps", self.norm_eps)
        self._check_heads()
        self._check_positions()
        self._check_architecture()

    def _check_heads(self) -> None:
        require(
            self.d_head is not None or self.d_model % self.num_heads == 0,
            f"d_model={self.d_model} is not divisible by num_heads={self.num_heads}; "
            "choose d_model as a multiple of num_heads, or give the width of a head, d_head",
        )
        require(
            self.num_kv_heads is None or self.num_heads % self.num_kv_heads == 0,
            f"num_heads={self.num_heads} is not divisible by num_kv_heads={self.num_kv_heads}; "
            "choose num_heads as a multiple of num_kv_heads",
        )

    def _check_positions(self) -> None:
        added = (PositionKind.sinusoidal, PositionKind.sinusoidal_halves)
        require(
            self.positions not in added or self.d_model % 2 == 0,
            f"d_model={self.d_model} is odd; sinusoids come in pairs, choose an even width",
        )
        require(
            self.positions is not PositionKind.rope or self.head_width % 2 == 0,
            f"d_head={self.head_width} is odd; rotary positions turn pairs, choose an even width of a head",
        )
        require(
            self.positions is not PositionKind.learned or self.max_positions is not None,
            "positions=learned needs max_positions, the number of rows of its table",
        )

    def _check_architecture(self) -> None:
        if self.architecture is Architecture.encoder_decoder:
            positive("num_encoder_layers", self.num_encoder_layers)
            require(
                not self.prefix_lm,
                "prefix_lm=true is for architecture=decoder_only; an encoder sees the whole source anyway",
            )
            return
        require(
            self.num_encoder_layers == 0,
            f"architecture=decoder_only has no encoder, got num_encoder_layers={self.num_encoder_layers}; give 0",
        )
        require(
            self.tying is not Tying.three_way,
            "architecture=decoder_only has one embedding, so tying=three_way means nothing; choose two_way or none",
        )

    def check_lengths(self, source: int, target: int, what: str) -> None:
        """Refuse a pair, or a text, that takes more positions than were learned.

        Args:
            source: Pieces of the source, EOS included; 0 for a text without one.
            target: Pieces of the target, EOS included, or of the text.
            what: What it is, for the message.

        Raises:
            ValueError: with both numbers.
        """
        if self.positions is not PositionKind.learned:
            return
        assert self.max_positions is not None
        in_a_row = self.architecture is Architecture.decoder_only and source > 0  # a source without its EOS
        needed = source - 1 + target if in_a_row else max(source, target)
        require(
            needed <= self.max_positions,
            f"{what} takes {needed} positions, but the model has learned {self.max_positions}; shorten it or leave it "
            "out",
        )

    @property
    def kv_heads(self) -> int:
        """Key/value heads G."""
        return self.num_kv_heads if self.num_kv_heads is not None else self.num_heads

    @property
    def head_width(self) -> int:
        """Width K of a head."""
        return self.d_head if self.d_head is not None else self.d_model // self.num_heads
