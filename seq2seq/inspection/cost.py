"""What a model costs by the formulas: parameters, multiply-adds against length, the cache, memory in training.

Nothing is built, so the largest configuration is as quick as the smallest. The tests hold every number against what is
measured: parameters against the network, multiply-adds against the products that run and against torch's own counter,
bytes of the cache against the cache. Memory of training is in `seq2seq.inspection.memory`.
"""

from dataclasses import dataclass, replace

from seq2seq.config import Architecture, ModelConfig, NormKind, NormPlacement, PositionKind, Tying
from seq2seq.inspection import formulas
from seq2seq.inspection.formulas import Figure
from seq2seq.nn.cache import BLOCK

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1}
"""Bytes of a number in each precision."""


@dataclass(frozen=True)
class Sizes:
    """A model and what it is given.

    A decoder-only model reads source (without its EOS) and target in a row, or with a source of 0 plain text.

    Raises:
        ValueError: for sizes below 1, or no source where there is an encoder.
    """

    config: ModelConfig
    source_rows: int
    """Rows of the source embedding."""
    target_rows: int
    """Rows of the target embedding."""
    batch: int = 1
    """Sentences B."""
    source: int = 0
    """Source pieces S, EOS included."""
    target: int = 1
    """Target pieces T, BOS included."""

    def __post_init__(self) -> None:
        for name in ("source_rows", "target_rows", "batch", "target"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} is below 1; give at least one")
        if self.source < (0 if self.decoder_only else 1):
            raise ValueError(f"source={self.source} is too few; give at least {0 if self.decoder_only else 1}")

    @property
    def decoder_only(self) -> bool:
        """Whether there is no encoder."""
        return self.config.architecture is Architecture.decoder_only

    @property
    def row(self) -> int:
        """Positions that the decoder reads: the target's, and in a decoder-only model the source's before them."""
        return self.target + (max(self.source - 1, 0) if self.decoder_only else 0)

    @property
    def predicted(self) -> str:
        """Letter of the positions that are predicted: a source in front of the target is read and not predicted."""
        return "T" if self.row == self.target else "U"

    def letters(self, stack: str = "decoder") -> dict[str, int]:
        """What each letter stands for in `encoder` or `decoder`; T counts all positions that the decoder reads."""
        config, encoder = self.config, stack == "encoder"
        own_d_ff = config.encoder_d_ff if encoder else config.decoder_d_ff
        return {
            "B": self.batch,
            "S": self.source,
            "T": self.row,
            "U": self.target,
            "D": config.d_model,
            "H": config.num_heads,
            "G": config.kv_heads,
            "K": config.head_width,
            "F": own_d_ff if own_d_ff is not None else config.d_ff,
            "V": self.source_rows if encoder else self.target_rows,
            "N": config.num_encoder_layers if encoder else config.num_decoder_layers,
            "M": config.max_positions or 0,
        }


@dataclass(frozen=True)
class Part:
    """Parameters of a part, or multiply-adds of one."""

    group: str
    """`embeddings`, `attention`, `feed-forward`, `norms` or `output`."""
    name: str
    figure: Figure
    biases: int = 0
    """Parameters that the formula leaves out."""
    grows: bool = False
    """Multiply-adds: whether they grow with the length for each single token, as those of scores and context do."""

    @property
    def total(self) -> int:
        """Biases included."""
        return self.figure.value + self.biases


def parameter_parts(sizes: Sizes) -> list[Part]:
    """All trained numbers by part; a tied matrix once, under the embeddings."""
    config, parts = sizes.config, _table_parts(sizes)
    stacks = ("decoder",) if sizes.decoder_only else ("encoder", "decoder")
    for stack in stacks:
        letters = sizes.letters(stack)
        matrices, biases = formulas.attention_parameters(letters), _attention_biases(sizes, stack)
        parts.append(Part("attention", f"{stack} self-attention", matrices, biases))
        if len(stacks) == 2 and stack == "decoder":
            parts.append(Part("attention", "cross-attention", matrices, biases))
        figure = formulas.feed_forward_parameters(letters, gated=config.gated)
        inner = (2 if config.gated else 1) * letters["F"]
        biases = letters["N"] * (inner + letters["D"]) if config.feed_forward_bias else 0
        parts.append(Part("feed-forward", f"{stack} feed-forward", figure, biases))
    return parts + [Part("norms", f"{stack} norms", _norms(sizes, stack)) for stack in stacks]


def _table_parts(sizes: Sizes) -> list[Part]:
    """Embeddings, learned positions and the output's matrix, where it is not tied."""
    config = sizes.config
    target = formulas.table_parameters(sizes.letters("decoder"))
    output = [Part("output", "output", target)] if config.tying is Tying.none else []
    if config.tying is Tying.three_way:
        parts = [Part("embeddings", "embeddings = output", target)]
    else:
        tied = "" if output else " = output"
        side = "" if sizes.decoder_only else "target "
        parts = [Part("embeddings", f"{side}embedding{tied}", target)]
        if not sizes.decoder_only:
            source = formulas.table_parameters(sizes.letters("encoder"))
            parts.insert(0, Part("embeddings", "source embedding", source))
    if config.positions is PositionKind.learned:
        for stack in ("decoder",) if sizes.decoder_only else ("encoder", "decoder"):
            parts.append(Part("embeddings", f"{stack} positions", Figure.of("M D", sizes.letters(stack))))
    if config.output_bias:
        output.append(Part("output", "output bias", Figure.of("V", sizes.letters("decoder"))))
    return parts + output


def _attention_biases(sizes: Sizes, stack: str) -> int:
    letters, kind = sizes.letters(stack), sizes.config.attention_bias.name
    inputs = (letters["H"] + 2 * letters["G"]) * letters["K"] if kind in ("all", "qkv") else 0
    return letters["N"] * (inputs + (letters["D"] if kind == "all" else 0))


def _norms(sizes: Sizes, stack: str) -> Figure:
    """Of every sublayer, after the last layer, and on the heads."""
    config, cross = sizes.config, stack == "decoder" and not sizes.decoder_only
    width = 2 if config.norm is NormKind.layer_norm else 1
    formula = f"{width * (3 if cross else 2)} N D"
    if config.norm_placement is NormPlacement.pre:
        formula += f" + {width} D"
    if config.qk_norm:
        formula += f" + {4 if cross else 2} N K"
    return Figure.of(formula, sizes.letters(stack))


def forward_parts(sizes: Sizes) -> list[Part]:
    """Multiply-adds of one pass over the whole batch, as in training and scoring, without the way back."""
    config, decoder = sizes.config, sizes.letters("decoder")
    parts = []
    if not sizes.decoder_only:
        # the encoder's formulas are the decoder's with S for T
        encoder = sizes.letters("encoder")
        parts = _own_parts("encoder", encoder, "S", "S")
        parts.append(_feed_forward("encoder", encoder, "S", gated=config.gated))
    parts += _own_parts("decoder", decoder, "T", "T")
    if not sizes.decoder_only:
        keys_values = formulas.cross_source_products(decoder)
        parts.append(Part("attention", "cross-attention k, v", keys_values))
        parts += _cross_parts(decoder, "T")
    parts.append(_feed_forward("decoder", decoder, "T", gated=config.gated))
    return [*parts, Part("output", "logits", formulas.logit_products(decoder, sizes.predicted))]


def step_parts(sizes: Sizes) -> list[Part]:
    """Multiply-adds of one decode step whose new piece is the last of the T, with all before it in the cache."""
    letters = sizes.letters("decoder")
    parts = _own_parts("decoder", letters, "", "T")
    if not sizes.decoder_only:
        parts += _cross_parts(letters, "")
    parts.append(_feed_forward("decoder", letters, "", gated=sizes.config.gated))
    return [*parts, Part("output", "logits", formulas.logit_products(letters, ""))]


def _own_parts(stack: str, letters: dict[str, int], queries: str, keys: str) -> list[Part]:
    """Self-attention."""
    return [
        Part("attention", f"{stack} projections", formulas.self_projection_products(letters, queries)),
        Part("attention", f"{stack} attention", formulas.attention_products(letters, queries, keys), grows=True),
    ]


def _cross_parts(letters: dict[str, int], queries: str) -> list[Part]:
    """Cross-attention, without the keys and values of the source."""
    return [
        Part("attention", "cross-attention q, output", formulas.cross_query_products(letters, queries)),
        Part("attention", "cross-attention", formulas.attention_products(letters, queries, "S"), grows=True),
    ]


def _feed_forward(stack: str, letters: dict[str, int], positions: str, *, gated: bool) -> Part:
    figure = formulas.feed_forward_products(letters, positions, gated=gated)
    return Part("feed-forward", f"{stack} feed-forward", figure)


@dataclass(frozen=True)
class PerToken:
    """Multiply-adds for each target token at one length, apart by whether they grow with it."""

    length: int
    """Of the target, and of the source where there is an encoder."""
    fixed: int
    """Projections, feed-forward networks and logits of encoder and decoder in a whole pass: the same at any length."""
    attention: int
    """Scores and context in a whole pass."""
    step_fixed: int
    """The same in a decode step at that length, which the encoder has no part in."""
    step_attention: int


def per_token(sizes: Sizes, lengths: list[int]) -> list[PerToken]:
    """Multiply-adds for each target token against length."""
    rows = []
    for length in lengths:
        at = replace(sizes, batch=1, source=0 if sizes.decoder_only else length, target=length)
        rows.append(PerToken(length, *_apart(forward_parts(at), length), *_apart(step_parts(at), 1)))
    return rows


def _apart(parts: list[Part], tokens: int) -> tuple[int, int]:
    """Multiply-adds a token that do not grow with the length, and those that do."""
    fixed = sum(part.figure.value for part in parts if not part.grows)
    return fixed // tokens, sum(part.figure.value for part in parts if part.grows) // tokens


@dataclass(frozen=True)
class Cache:
    """Keys and values kept between decode steps, for `batch` rows; a beam of W has W times as many of its own."""

    own: Figure
    """Elements of the positions so far."""
    cross: Figure | None
    """Elements of the source; None without an encoder."""
    allocated: int
    """Elements of the buffers, in which positions so far are rounded up to whole blocks."""
    bytes_each: int

    @property
    def used_bytes(self) -> int:
        """Bytes of the positions in use."""
        return (self.own.value + (self.cross.value if self.cross else 0)) * self.bytes_each

    @property
    def allocated_bytes(self) -> int:
        """Bytes that the buffers take."""
        return self.allocated * self.bytes_each


def cache(sizes: Sizes, precision: str = "fp32") -> Cache:
    """The cache after the last of the target's pieces.

    Args:
        sizes: The model and what it is given.
        precision: A name in `BYTES`.
    """
    letters = sizes.letters("decoder")
    cross = None if sizes.decoder_only else formulas.cross_cache_elements(letters)
    rounded = formulas.self_cache_elements({**letters, "T": -(-letters["T"] // BLOCK) * BLOCK})
    allocated = rounded.value + (cross.value if cross else 0)
    return Cache(formulas.self_cache_elements(letters), cross, allocated, BYTES[precision])
