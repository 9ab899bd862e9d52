"""How the tensors of each Hugging Face family are named and laid out: one table, read both ways.

A row of a table says which tensors of theirs make up one parameter of ours. Import stacks them, export splits them
again, so that the two cannot disagree. Rotary pairs need no row of their own: published LLaMA and Qwen weights have the
order of rows that `seq2seq.nn.rotary` turns.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace

from seq2seq.config import AttentionBias, ModelConfig, Tying


class Size(enum.Enum):
    """A length of ours, where a parameter that gives it may be missing: V rows of the output, D entries of a vector."""

    rows = "rows"
    width = "width"


class Layout(enum.Enum):
    """How one tensor of theirs is laid out, beside ours.

    plain: as ours. transposed: [in, out] where ours is [out, in] (the `Conv1D` of GPT-2). row: [1, V], ours is [V].
    """

    plain = "plain"
    transposed = "transposed"
    row = "row"


@dataclass(frozen=True)
class Weight:
    """One parameter of ours and the tensors of theirs that it is made of."""

    ours: str
    """Name in our model."""
    theirs: tuple[str, ...]
    """Names in theirs. Several are stacked on rows: queries, keys, values; keys, values; gate, value."""
    layout: Layout = Layout.plain
    """Of theirs."""
    zeros: Size | None = None
    """Ours may lack it; theirs is then so many zeros, which computes the same."""


WeightTable = Callable[[ModelConfig], list[Weight]]


def marian_weights(config: ModelConfig) -> list[Weight]:
    """MarianMT: separate projections of queries, keys and values, one shared table, a bias on the logits."""
    table = [Weight("output_bias", ("final_logits_bias",), Layout.row, zeros=Size.rows)]
    if config.tying is Tying.three_way:
        table.append(Weight("output", ("model.shared.weight",)))
    else:
        table += [
            Weight("encoder.embedding.rows.weight", ("model.encoder.embed_tokens.weight",)),
            Weight("decoder.embedding.rows.weight", ("model.decoder.embed_tokens.weight",)),
        ]
    if config.tying is Tying.none:
        table.append(Weight("output", ("lm_head.weight",)))
    for layer in range(config.num_encoder_layers):
        table += _marian_layer(f"encoder.layers.{layer}", f"model.encoder.layers.{layer}")
    for layer in range(config.num_decoder_layers):
        ours, theirs = f"decoder.layers.{layer}", f"model.decoder.layers.{layer}"
        table += _marian_layer(ours, theirs)
        table += _linear(f"{ours}.cross_attention.query", f"{theirs}.encoder_attn.q_proj")
        table += _linear(
            f"{ours}.cross_attention.key_value", f"{theirs}.encoder_attn.k_proj", f"{theirs}.encoder_attn.v_proj"
        )
        table += _linear(f"{ours}.cross_attention.output", f"{theirs}.encoder_attn.out_proj")
        table += _linear(f"{ours}.cross_attention_norm", f"{theirs}.encoder_attn_layer_norm")
    return table


def _marian_layer(ours: str, theirs: str) -> list[Weight]:
    """Self-attention and feed-forward network of either stack."""
    return [
        *_linear(
            f"{ours}.self_attention.query_key_value", *(f"{theirs}.self_attn.{part}_proj" for part in ("q", "k", "v"))
        ),
        *_linear(f"{ours}.self_attention.output", f"{theirs}.self_attn.out_proj"),
        *_linear(f"{ours}.self_attention_norm", f"{theirs}.self_attn_layer_norm"),
        *_linear(f"{ours}.feed_forward.inner", f"{theirs}.fc1"),
        *_linear(f"{ours}.feed_forward.output", f"{theirs}.fc2"),
        *_linear(f"{ours}.feed_forward_norm", f"{theirs}.final_layer_norm"),
    ]


def gpt2_weights(config: ModelConfig) -> list[Weight]:
    """GPT-2: queries, keys and values in one tensor; matrices transposed."""
    table = [
        Weight("decoder.embedding.rows.weight", ("transformer.wte.weight",)),
        Weight("decoder.embedding.positions.table.weight", ("transformer.wpe.weight",)),
        *_linear("decoder.final_norm", "transformer.ln_f"),
    ]
    if config.tying is Tying.none:
        table.append(Weight("output", ("lm_head.weight",)))
    for layer in range(config.num_decoder_layers):
        ours, theirs = f"decoder.layers.{layer}", f"transformer.h.{layer}"
        table += _transposed(_linear(f"{ours}.self_attention.query_key_value", f"{theirs}.attn.c_attn"))
        table += _transposed(_linear(f"{ours}.self_attention.output", f"{theirs}.attn.c_proj"))
        table += _linear(f"{ours}.self_attention_norm", f"{theirs}.ln_1")
        table += _transposed(_linear(f"{ours}.feed_forward.inner", f"{theirs}.mlp.c_fc"))
        table += _transposed(_linear(f"{ours}.feed_forward.output", f"{theirs}.mlp.c_proj"))
        table += _linear(f"{ours}.feed_forward_norm", f"{theirs}.ln_2")
    return table


def llama_weights(config: ModelConfig) -> list[Weight]:
    """LLaMA and Qwen 3: biases of attention on all four projections, or none."""
    table = qwen2_weights(config)
    if config.attention_bias is AttentionBias.qkv:
        for layer in range(config.num_decoder_layers):
            ours = f"decoder.layers.{layer}.self_attention.output.bias"
            table.append(Weight(ours, (f"model.layers.{layer}.self_attn.o_proj.bias",), zeros=Size.width))
    return table


def qwen2_weights(config: ModelConfig) -> list[Weight]:
    """Qwen 2: separate projections, a gate, RMSNorms; which biases there are our options say."""
    table = [
        Weight("decoder.embedding.rows.weight", ("model.embed_tokens.weight",)),
        Weight("decoder.final_norm.weight", ("model.norm.weight",)),
    ]
    if config.tying is Tying.none:
        table.append(Weight("output", ("lm_head.weight",)))
    input_bias = config.attention_bias is not AttentionBias.none
    output_bias = config.attention_bias is AttentionBias.all
    for layer in range(config.num_decoder_layers):
        ours, theirs = f"decoder.layers.{layer}", f"model.layers.{layer}"
        projections = [f"{theirs}.self_attn.{part}_proj" for part in ("q", "k", "v")]
        gate_and_value = [f"{theirs}.mlp.gate_proj", f"{theirs}.mlp.up_proj"]
        table += _linear(f"{ours}.self_attention.query_key_value", *projections, bias=input_bias)
        table += _linear(f"{ours}.self_attention.output", f"{theirs}.self_attn.o_proj", bias=output_bias)
        if config.qk_norm:
            table += _linear(f"{ours}.self_attention.query_norm", f"{theirs}.self_attn.q_norm", bias=False)
            table += _linear(f"{ours}.self_attention.key_norm", f"{theirs}.self_attn.k_norm", bias=False)
        table += _linear(f"{ours}.self_attention_norm", f"{theirs}.input_layernorm", bias=False)
        table += _linear(f"{ours}.feed_forward.inner", *gate_and_value, bias=config.feed_forward_bias)
        table += _linear(f"{ours}.feed_forward.output", f"{theirs}.mlp.down_proj", bias=config.feed_forward_bias)
        table += _linear(f"{ours}.feed_forward_norm", f"{theirs}.post_attention_layernorm", bias=False)
    return table


def _linear(ours: str, *theirs: str, bias: bool = True) -> list[Weight]:
    """The rows of a projection or norm: its weight, and its bias if it has one."""
    kinds = ("weight", "bias") if bias else ("weight",)
    return [Weight(f"{ours}.{kind}", tuple(f"{name}.{kind}" for name in theirs)) for kind in kinds]


def _transposed(weights: list[Weight]) -> list[Weight]:
    """The same with matrices [in, out]."""
    return [replace(weight, layout=Layout.transposed) for weight in weights]
