"""The Hugging Face families that are read and written, and whether a model fits one of them.

A family is two tables, of options (`families_options`) and of tensors (`families_weights`), and what it computes with
where it has no option. Both directions go through the same tables.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from seq2seq.config import (
    Architecture,
    AttentionBias,
    ModelConfig,
    NormKind,
    NormPlacement,
    PositionKind,
    from_dict,
    to_dict,
)
from seq2seq.interop.families_options import (
    ATTENTION_BIAS,
    GPT2_D_FF,
    GPT2_HEADS,
    MARIAN_HEADS,
    MARIAN_OUTPUT_BIAS,
    MARIAN_TYING,
    MARIAN_WIDTHS,
    NO_DROPOUT,
    MisfitError,
    Options,
    Row,
    activation,
    decoder_d_ff,
    decoder_tying,
    grouped_heads,
    same,
)
from seq2seq.interop.families_rope import ROPE
from seq2seq.interop.families_weights import WeightTable, gpt2_weights, llama_weights, marian_weights, qwen2_weights


@dataclass(frozen=True)
class Family:
    """One kind of model as Hugging Face has it."""

    model_type: str
    """How config.json names it."""
    class_name: str
    """The class of `transformers` that reads it."""
    rows: tuple[Row, ...]
    """Options that vary."""
    fixed: dict[str, Any]
    """Options of ours that the family has no key for, and the value that it computes with."""
    unread: tuple[str, ...]
    """Options of ours that do not change what a trained model computes, or only without `fixed`."""
    expected: Options
    """Keys of theirs that we have no option for, and the value that we compute with; also what absence means."""
    weights: WeightTable
    """Tensors."""
    left_out: re.Pattern[str]
    """Tensors of theirs that are constants or copies, as older versions saved them."""
    prefix: str = ""
    """What the names of tensors begin with; files of the network without its output, such as GPT-2's own, lack it."""
    check: Callable[[Options], None] = field(default=lambda options: None)
    """Raises `MisfitError` for what takes more than one key to see."""


def read_options(family: Family, options: Options) -> ModelConfig:
    """Our options for a config.json of the family.

    Raises:
        ValueError: naming the key and value that this package has no counterpart for, or that is missing.
    """
    for key, expected in family.expected.items():
        value = options.get(key, expected)
        if value != expected and not (value is None and not expected):
            raise MisfitError(f"{key}={_shown(value)}; this package computes with {key}={_shown(expected)}")
    family.check(options)
    ours: Options = dict(family.fixed)
    for row in family.rows:
        ours |= dict(zip(row.ours, row.read(*row.values(options)), strict=True))
    if "rope" in ours:
        ours["rope"] = to_dict(ours["rope"])
    return from_dict(ModelConfig, ours)


def write_options(family: Family, config: ModelConfig, original: Options | None = None) -> tuple[Options, list[str]]:
    """The family's keys for our options, and what does not fit.

    Args:
        family: To write for.
        config: Our options.
        original: The config.json that the model was imported from. Keys that still say the same stay as they are, and
            those that this package does not know are kept.

    Returns:
        The keys, and for each option of ours that the family has no word for a phrase that names it; a model fits if
        there is none.
    """
    options, misfits = dict(original or {}), []
    for name, value in family.fixed.items():
        if getattr(config, name) != value:
            misfits.append(f"{name}={_shown(getattr(config, name))}; needs {_shown(value)}")
    for row in family.rows:
        try:
            if original is not None and row.read(*row.values(original)) == tuple(getattr(config, n) for n in row.ours):
                continue
            options = {key: value for key, value in options.items() if key not in row.replaces} | row.write(config)
        except MisfitError as misfit:
            misfits.append(str(misfit))
    return options, misfits


def _shown(value: Any) -> str:
    """As users write it."""
    if isinstance(value, Enum):
        return value.name
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)


def _no_window(options: Options) -> None:
    """Refuse attention that sees only the last so many positions, where it is in effect."""
    layers = options.get("layer_types")
    windows = [kind for kind in layers or () if kind != "full_attention"]
    if windows:
        raise MisfitError(f"layer_types has {windows[0]!r}; this package has full_attention only")
    window, first = options.get("sliding_window", 4096), options.get("max_window_layers", 28)
    used = layers is None and options.get("use_sliding_window") and first < options.get("num_hidden_layers", 0)
    if used and window is not None:
        raise MisfitError(
            f"use_sliding_window=true with sliding_window={window}; this package attends to all positions"
        )


_EVERYWHERE: Options = {"quantization_config": None}

_DECODER_ONLY = {
    "architecture": Architecture.decoder_only,
    "num_encoder_layers": 0,
    "norm_placement": NormPlacement.pre,
    "scale_embedding": False,
    "output_bias": False,
    "prefix_lm": False,
}

MARIAN = Family(
    model_type="marian",
    class_name="MarianMTModel",
    rows=(
        same("d_model", "d_model"),
        same("encoder_layers", "num_encoder_layers"),
        same("decoder_layers", "num_decoder_layers"),
        MARIAN_HEADS,
        MARIAN_WIDTHS,
        MARIAN_TYING,
        MARIAN_OUTPUT_BIAS,
        activation("activation_function", "gelu"),
        same("scale_embedding", "scale_embedding", False),
        same("dropout", "dropout", 0.1),
        same("attention_dropout", "attention_dropout", 0.0),
        same("activation_dropout", "activation_dropout", 0.0),
    ),
    fixed={
        "architecture": Architecture.encoder_decoder,
        "norm": NormKind.layer_norm,
        "norm_placement": NormPlacement.post,
        "norm_eps": 1e-5,
        "qk_norm": False,
        "positions": PositionKind.sinusoidal_halves,
        "attention_bias": AttentionBias.all,
        "feed_forward_bias": True,
        "gated": False,
        "prefix_lm": False,
    },
    unread=("vocab_multiple", "rope", "max_positions"),
    expected={
        **_EVERYWHERE,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "tie_encoder_decoder": False,
    },
    weights=marian_weights,
    left_out=re.compile(
        r"lm_head\.weight|model\.(encoder|decoder)\.embed_tokens\.weight|model\.(encoder|decoder)\.embed_positions\.weight"
    ),
)

GPT2 = Family(
    model_type="gpt2",
    class_name="GPT2LMHeadModel",
    rows=(
        same("n_embd", "d_model"),
        same("n_layer", "num_decoder_layers"),
        same("n_positions", "max_positions"),
        GPT2_HEADS,
        GPT2_D_FF,
        decoder_tying(True),
        activation("activation_function", "gelu_new"),
        same("layer_norm_epsilon", "norm_eps", 1e-5),
        same("resid_pdrop", "dropout", 0.1),
        same("attn_pdrop", "attention_dropout", 0.1),
    ),
    fixed={
        **_DECODER_ONLY,
        "norm": NormKind.layer_norm,
        "qk_norm": False,
        "positions": PositionKind.learned,
        "attention_bias": AttentionBias.all,
        "feed_forward_bias": True,
        "gated": False,
    },
    unread=("vocab_multiple", "activation_dropout", "rope"),
    expected={
        **_EVERYWHERE,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
    },
    weights=gpt2_weights,
    left_out=re.compile(r"lm_head\.weight|transformer\.h\.\d+\.attn\.(bias|masked_bias)"),
    prefix="transformer.",
)


def _llama_like(
    model_type: str,
    class_name: str,
    *own_rows: Row,
    heads: tuple[int | None, int | None],
    fixed: dict[str, Any],
    weights: WeightTable = llama_weights,
) -> Family:
    """LLaMA, and Qwen, which differs from it in few options."""
    return Family(
        model_type=model_type,
        class_name=class_name,
        rows=(
            same("hidden_size", "d_model"),
            same("num_hidden_layers", "num_decoder_layers"),
            grouped_heads(*heads),
            decoder_d_ff("intermediate_size"),
            decoder_tying(False),
            activation("hidden_act", "silu"),
            same("rms_norm_eps", "norm_eps", 1e-6),
            same("attention_dropout", "attention_dropout", 0.0),
            NO_DROPOUT,
            ROPE,
            *own_rows,
        ),
        fixed={
            **_DECODER_ONLY,
            "norm": NormKind.rms_norm,
            "positions": PositionKind.rope,
            "gated": True,
            **fixed,
        },
        unread=("vocab_multiple", "activation_dropout", "max_positions"),
        expected=_EVERYWHERE,
        weights=weights,
        left_out=re.compile(r"lm_head\.weight|model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq"),
        prefix="model.",
        check=_no_window,
    )


LLAMA = _llama_like(
    "llama",
    "LlamaForCausalLM",
    ATTENTION_BIAS,
    same("mlp_bias", "feed_forward_bias", False),
    heads=(None, None),
    fixed={"qk_norm": False},
)
QWEN2 = _llama_like(
    "qwen2",
    "Qwen2ForCausalLM",
    heads=(32, None),
    fixed={"qk_norm": False, "attention_bias": AttentionBias.qkv, "feed_forward_bias": False},
    weights=qwen2_weights,
)
QWEN3 = _llama_like(
    "qwen3",
    "Qwen3ForCausalLM",
    ATTENTION_BIAS,
    heads=(32, 128),
    fixed={"qk_norm": True, "feed_forward_bias": False},
)

FAMILIES = {family.model_type: family for family in (MARIAN, GPT2, QWEN2, LLAMA, QWEN3)}
"""By `model_type`, in the order in which an export tries them."""
