"""Models for CTranslate2, a C++ engine that translates on CPUs and GPUs, with 8-bit weights too.

folder/
    model.bin, config.json, *vocabulary.json    what CTranslate2 reads
    source.spm, target.spm, ...                 the tokenizers, as in the bundle
    README.md                                   a program that translates with them

Encoder-decoders become models of its `Translator`, decoder-only ones of its `Generator`. Sinusoids are written as a
table, as those that CTranslate2 computes by itself are another formula.
"""

import math
from pathlib import Path
from typing import Any

from seq2seq.bundle import Bundle
from seq2seq.config import (
    Activation,
    Architecture,
    ModelConfig,
    NormKind,
    NormPlacement,
    PositionKind,
    RopeScaling,
    Task,
)
from seq2seq.interop.ctranslate2_readme import readme
from seq2seq.interop.ctranslate2_weights import fill_output, fill_stack, quantize
from seq2seq.models import DecoderOnly, EncoderDecoder
from seq2seq.text.new_folder import new_folder
from seq2seq.text.tokenizer import Tokenizer

MODEL_FILE, CONFIG_FILE, README_FILE = "model.bin", "config.json", "README.md"

MOST_POSITIONS = 16384
"""Rows of the table of sinusoids are not more than this, whatever lengths the search options allow."""

_ACTIVATIONS = {
    Activation.relu: "RELU",
    Activation.gelu: "GELU",
    Activation.gelu_tanh: "GELUTanh",
    Activation.gelu_sigmoid: "GELUSigmoid",
    Activation.silu: "SWISH",
}


def is_ctranslate2(folder: str | Path) -> bool:
    """Whether the folder has a model.bin and a config.json, as CTranslate2 writes them."""
    return all((Path(folder) / name).is_file() for name in (MODEL_FILE, CONFIG_FILE))


def export_ctranslate2(bundle: Bundle, folder: str | Path, quantization: str | None = None) -> None:
    """Write the bundle as a folder that CTranslate2 reads, whole or not at all; an older one is replaced.

    Args:
        bundle: The model, whose weights are written as float32 before they are quantised.
        folder: Where to.
        quantization: float32, int8, int8_float32, int8_float16, int8_bfloat16, int16, float16 or bfloat16; None is
            float32.

    Raises:
        ValueError: if CTranslate2 is not installed, cannot do what the model does, or has no such quantisation; or
            something else is at `folder`.
        OSError: if it cannot be written; nothing is left then.
    """
    check_quantization(quantization)
    check_exportable(bundle.model_config)
    spec = _spec(bundle)
    spec.validate()
    quantize(spec, quantization)
    with new_folder(folder, is_ctranslate2, "a CTranslate2 model") as scratch:
        spec.save(str(scratch))
        files = bundle.source_tokenizer.files("source")
        if bundle.task is Task.translation:
            files |= bundle.target_tokenizer.files("target")
        for name, content in files.items():
            (scratch / name).write_bytes(content)
        text = readme(bundle, quantization or "float32", vocabulary(bundle.target_tokenizer))
        (scratch / README_FILE).write_text(text, encoding="utf-8")


def check_quantization(quantization: str | None) -> None:
    """Refuse a quantisation that CTranslate2 does not have, or that it is not installed.

    Raises:
        ValueError: naming those that there are, or what to install.
    """
    known = _library().specs.model_spec.ACCEPTED_MODEL_TYPES
    if quantization is not None and quantization not in known:
        raise ValueError(f"quantization {quantization!r} is not one that CTranslate2 has; give {', '.join(known)}")


def check_exportable(config: ModelConfig) -> None:
    """Refuse a model that CTranslate2 cannot compute.

    Raises:
        ValueError: naming the option.
    """
    if config.qk_norm and config.architecture is Architecture.encoder_decoder:
        raise ValueError(
            "qk_norm=true of an encoder-decoder cannot be written for CTranslate2, which norms the heads of "
            "self-attention only; train with model.qk_norm=false for it"
        )
    if config.prefix_lm:
        raise ValueError(
            "prefix_lm=true cannot be written for CTranslate2, whose decoder-only models are causal everywhere; train "
            "with model.prefix_lm=false for it"
        )


def _library() -> Any:
    """The package ctranslate2, which is needed only here.

    Raises:
        ValueError: if it is not installed.
    """
    try:
        import ctranslate2
        import ctranslate2.specs
    except ImportError as error:
        raise ValueError(
            "writing models for CTranslate2 needs the package ctranslate2; pip install 'seq2seq[interop]'"
        ) from error
    return ctranslate2


def _spec(bundle: Bundle) -> Any:
    """CTranslate2's description of the model, its weights and vocabularies filled in."""
    specs = _library().specs
    model, config = bundle.model, bundle.model_config
    source, target = bundle.source_tokenizer, bundle.target_tokenizer
    names, rows = vocabulary(target), num_positions(bundle)
    special = target.special
    decoder = specs.TransformerDecoderSpec(
        config.num_decoder_layers,
        config.num_heads,
        with_encoder_attention=isinstance(model, EncoderDecoder),
        **_options(config),
    )
    if isinstance(model, EncoderDecoder):
        encoder = specs.TransformerEncoderSpec(config.num_encoder_layers, config.num_heads, **_options(config))
        spec = specs.TransformerSpec(encoder, decoder)
        fill_stack(encoder, model.encoder, rows, source.vocab_size)
        fill_stack(decoder, model.decoder, rows, target.vocab_size)
        # There is one name for EOS and unknown pieces, so those of the source are called like those of the target.
        shared = {source.special.eos: names[special.eos], source.special.unk: names[special.unk]}
        spec.register_source_vocabulary(vocabulary(source, shared))
        spec.register_target_vocabulary(names)
        spec.config.add_source_eos = True
        spec.config.decoder_start_token = names[special.bos]
    else:
        assert isinstance(model, DecoderOnly)
        spec = specs.TransformerDecoderModelSpec(decoder)
        fill_stack(decoder, model.decoder, rows, target.vocab_size)
        spec.register_vocabulary(names)
    never = {special.pad, special.bos} - {special.eos} if bundle.task is Task.translation else set()
    fill_output(decoder.projection, model.output, model.output_bias, sorted(never), target.vocab_size)
    spec.config.bos_token, spec.config.eos_token = names[special.bos], names[special.eos]
    spec.config.unk_token = names[special.unk]
    spec.config.layer_norm_epsilon = config.norm_eps
    return spec


def _options(config: ModelConfig) -> dict[str, Any]:
    """What encoder and decoder have in common, as keyword arguments of their specs."""
    specs = _library().specs
    options: dict[str, Any] = {
        "pre_norm": config.norm_placement is NormPlacement.pre,
        "activation": getattr(specs.common_spec.Activation, _ACTIVATIONS[config.activation]),
        "ffn_glu": config.gated,
        "rms_norm": config.norm is NormKind.rms_norm,
    }
    if config.kv_heads != config.num_heads:
        options["num_heads_kv"] = config.kv_heads
    if config.head_width * config.num_heads != config.d_model:
        options["head_dim"] = config.head_width
    if config.qk_norm:
        options["qk_norm"] = True
    if config.positions is PositionKind.rope:
        options |= {"rotary_dim": config.head_width, "rotary_interleave": False, "rotary_base": config.rope.base}
        if config.rope.scaling is not RopeScaling.none:
            options["rotary_scaling_type"] = specs.attention_spec.RotaryScalingType.Su
    return options


def num_positions(bundle: Bundle) -> int:
    """Rows of the table of sinusoids: as many as the bundle's own search options ask for, and 2048 at least."""
    decode = bundle.decode
    target = math.ceil(decode.max_length_factor * decode.max_source_length + decode.max_length_offset)
    if decode.max_length is not None:
        target = min(target, decode.max_length)
    is_one_row = bundle.model_config.architecture is Architecture.decoder_only
    longest = decode.max_source_length + target if is_one_row else max(decode.max_source_length, target)
    return min(max(2048, longest), MOST_POSITIONS)


def vocabulary(tokenizer: Tokenizer, special: dict[int, str] | None = None) -> list[str]:
    """The string that stands for each id, no two alike.

    They are what the tokenizer's own library gives for a text: for a tokenizer.json that is not what people read.

    Args:
        tokenizer: Whose pieces.
        special: Other names for some ids.
    """
    ids = range(tokenizer.vocab_size)
    pieces = _raw_pieces(tokenizer) if tokenizer.format == "huggingface" else tokenizer.pieces(ids)
    names = dict(special or {})
    taken = set(names.values())
    for id_ in ids:
        name = pieces[id_]
        while id_ not in names and name in taken:
            name = f"{name}#{id_}"
        taken.add(names.setdefault(id_, name))
    return [names[id_] for id_ in ids]


def _raw_pieces(tokenizer: Tokenizer) -> list[str]:
    """The pieces of a tokenizer.json as they are in the file; ids without one get a name that no text is split into."""
    import tokenizers

    (content,) = (content for name, content in tokenizer.files("source").items() if name.endswith(".json"))
    table = tokenizers.Tokenizer.from_str(content.decode("utf-8"))
    pieces = (table.id_to_token(id_) for id_ in range(tokenizer.vocab_size))
    return [piece if piece is not None else f"<no piece {id_}>" for id_, piece in enumerate(pieces)]
