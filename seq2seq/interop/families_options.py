"""How the options of each Hugging Face family are named and written: one table, read both ways.

A row says which keys of their config.json stand for which options of ours, and translates both ways. Options of ours
that a family has no key for must have the one value that the family computes with; keys of theirs that we have no
option for must have the one value that we compute with.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seq2seq.config import Activation, AttentionBias, ModelConfig, Tying

REQUIRED = object()
"""In place of a default: the key must be there."""

Options = dict[str, Any]
"""Options as config.json has them."""


class MisfitError(ValueError):
    """An option that one side has and the other has no word for."""


@dataclass(frozen=True)
class Row:
    """Some keys of theirs and the options of ours that they stand for."""

    theirs: tuple[str, ...]
    """Keys of config.json."""
    defaults: tuple[Any, ...]
    """What their absence means; `REQUIRED` where it means a damaged file."""
    ours: tuple[str, ...]
    """Options of `ModelConfig`."""
    read: Callable[..., tuple[Any, ...]]
    """Takes the values of `theirs`, gives those of `ours`."""
    write: Callable[[ModelConfig], Options]
    """Gives the keys of theirs with their values. Raises `MisfitError` where they have no word for it."""
    replaces: tuple[str, ...] = ()
    """Older keys that are left out where the row is written anew."""

    def values(self, options: Options) -> tuple[Any, ...]:
        """What a config.json says on this row.

        Raises:
            ValueError: if a key is missing that has no default.
        """
        found = tuple(options.get(key, default) for key, default in zip(self.theirs, self.defaults, strict=True))
        for key, value in zip(self.theirs, found, strict=True):
            if value is REQUIRED:
                raise ValueError(f"{key} is missing; expected it in every folder of this family")
        return found


def same(theirs: str, ours: str, default: Any = REQUIRED) -> Row:
    """A key and an option that mean the same."""
    return Row(
        (theirs,),
        (default,),
        (ours,),
        read=lambda value: (value,),
        write=lambda config: {theirs: getattr(config, ours)},
    )


ACTIVATIONS = {
    "relu": Activation.relu,
    "gelu": Activation.gelu,
    "gelu_new": Activation.gelu_tanh,
    "gelu_pytorch_tanh": Activation.gelu_tanh,
    "quick_gelu": Activation.gelu_sigmoid,
    "silu": Activation.silu,
    "swish": Activation.silu,
}
"""Their names for the non-linearities of ours; of several names the first is written."""


def activation(theirs: str, default: str) -> Row:
    """The key of the feed-forward network's non-linearity."""

    def read(word: str) -> tuple[Activation]:
        if word not in ACTIVATIONS:
            raise MisfitError(f"{theirs}={word!r}; this package has {', '.join(ACTIVATIONS)}")
        return (ACTIVATIONS[word],)

    def write(config: ModelConfig) -> Options:
        return {theirs: next(word for word, meant in ACTIVATIONS.items() if meant is config.activation)}

    return Row((theirs,), (default,), ("activation",), read, write)


def _plain_heads(config: ModelConfig) -> int:
    """The number of heads, for families in which all heads are alike and as wide as D / H."""
    if config.kv_heads != config.num_heads:
        raise MisfitError(f"num_kv_heads={config.num_kv_heads}; needs as many as num_heads={config.num_heads}")
    if config.head_width * config.num_heads != config.d_model:
        raise MisfitError(f"d_head={config.d_head}; needs d_model / num_heads = {config.d_model / config.num_heads:g}")
    return config.num_heads


def _read_marian_heads(encoder: int, decoder: int) -> tuple[int, None, None]:
    if encoder != decoder:
        raise MisfitError(
            f"encoder_attention_heads={encoder} and decoder_attention_heads={decoder}; this package has one number "
            "for both stacks"
        )
    return encoder, None, None


MARIAN_HEADS = Row(
    ("encoder_attention_heads", "decoder_attention_heads"),
    (REQUIRED, REQUIRED),
    ("num_heads", "num_kv_heads", "d_head"),
    _read_marian_heads,
    write=lambda config: dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), _plain_heads(config)),
)

GPT2_HEADS = Row(
    ("n_head",),
    (REQUIRED,),
    ("num_heads", "num_kv_heads", "d_head"),
    read=lambda heads: (heads, None, None),
    write=lambda config: {"n_head": _plain_heads(config)},
)


def grouped_heads(default_kv_heads: int | None, default_width: int | None) -> Row:
    """Query heads, key/value heads and their width, of LLaMA and Qwen."""
    return Row(
        ("num_attention_heads", "num_key_value_heads", "head_dim"),
        (REQUIRED, default_kv_heads, default_width),
        ("num_heads", "num_kv_heads", "d_head"),
        read=lambda heads, kv_heads, width: (heads, kv_heads, width),
        write=lambda config: {
            "num_attention_heads": config.num_heads,
            "num_key_value_heads": config.kv_heads,
            "head_dim": config.head_width,
        },
    )


MARIAN_WIDTHS = Row(
    ("encoder_ffn_dim", "decoder_ffn_dim"),
    (REQUIRED, REQUIRED),
    ("d_ff", "encoder_d_ff", "decoder_d_ff"),
    read=lambda encoder, decoder: (encoder, None, None if decoder == encoder else decoder),
    write=lambda config: {
        "encoder_ffn_dim": config.encoder_d_ff or config.d_ff,
        "decoder_ffn_dim": config.decoder_d_ff or config.d_ff,
    },
)

MARIAN_TYING = Row(
    ("share_encoder_decoder_embeddings", "tie_word_embeddings"),
    (True, True),
    ("tying",),
    read=lambda shared, tied: (_marian_tying(shared, tied),),
    write=lambda config: {
        "share_encoder_decoder_embeddings": config.tying is Tying.three_way,
        "tie_word_embeddings": config.tying is not Tying.none,
    },
)


def _marian_tying(shared: bool, tied: bool) -> Tying:
    if shared and not tied:
        raise MisfitError(
            "share_encoder_decoder_embeddings=true with tie_word_embeddings=false; this package shares the embedding "
            "of both sides only together with the output"
        )
    return Tying.three_way if shared else Tying.two_way if tied else Tying.none


def decoder_tying(default: bool) -> Row:
    """Whether the one embedding of a decoder-only model is its output too."""
    return Row(
        ("tie_word_embeddings",),
        (default,),
        ("tying",),
        read=lambda tied: (Tying.two_way if tied else Tying.none,),
        write=lambda config: {"tie_word_embeddings": config.tying is Tying.two_way},
    )


NO_DROPOUT = Row((), (), ("dropout",), read=lambda: (0.0,), write=lambda config: {})
"""There is none; ours is left out, as it changes nothing in a trained model."""

MARIAN_OUTPUT_BIAS = Row((), (), ("output_bias",), read=lambda: (True,), write=lambda config: {})
"""There always is one; it is zero where ours has none."""


def decoder_d_ff(theirs: str) -> Row:
    """Feed-forward width of a decoder-only model."""
    return Row(
        (theirs,),
        (REQUIRED,),
        ("d_ff", "encoder_d_ff", "decoder_d_ff"),
        read=lambda width: (width, None, None),
        write=lambda config: {theirs: config.decoder_d_ff or config.d_ff},
    )


GPT2_D_FF = Row(
    ("n_inner", "n_embd"),
    (None, REQUIRED),
    ("d_ff", "encoder_d_ff", "decoder_d_ff"),
    read=lambda inner, width: (4 * width if inner is None else inner, None, None),
    write=lambda config: {"n_inner": config.decoder_d_ff or config.d_ff},
)


ATTENTION_BIAS = Row(
    ("attention_bias",),
    (False,),
    ("attention_bias",),
    read=lambda biased: (AttentionBias.all if biased else AttentionBias.none,),
    write=lambda config: {"attention_bias": config.attention_bias is not AttentionBias.none},
)
"""Biases on all four projections of attention, or on none. The fourth is zero where ours has three."""
