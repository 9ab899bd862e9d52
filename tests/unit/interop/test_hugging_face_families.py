"""seq2seq.interop.families and its tables: what each key of config.json means, both ways, and what is refused."""

import dataclasses
from dataclasses import replace

import pytest

from seq2seq.config import Activation, AttentionBias, ModelConfig, RopeConfig, RopeScaling, Tying
from seq2seq.interop.families import FAMILIES, GPT2, LLAMA, MARIAN, QWEN2, QWEN3, read_options, write_options
from seq2seq.models import build_model

SIZES = {
    "marian": {
        "d_model": 24, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 20, "decoder_ffn_dim": 28,
    },
    "gpt2": {"n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 30},
    "llama": {
        "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 20,
    },
}  # fmt: skip
SIZES |= {"qwen2": SIZES["llama"], "qwen3": SIZES["llama"]}


@pytest.fixture(params=FAMILIES.values(), ids=FAMILIES)
def family(request):
    return request.param


def test_every_option_of_a_network_is_in_the_tables_of_every_family_once(family):
    said = [*(name for row in family.rows for name in row.ours), *family.fixed, *family.unread]
    assert sorted(said) == sorted(option.name for option in dataclasses.fields(ModelConfig))


def test_every_weight_of_a_network_is_in_the_table_of_its_family(family):
    config = read_options(family, SIZES[family.model_type])
    model = build_model(config, 11, 11)
    ours = {weight.ours for weight in family.weights(config)}
    names = dict(model.named_parameters(remove_duplicate=False))
    assert ours <= names.keys()
    assert {id(names[name]) for name in ours} == {id(parameter) for parameter in model.parameters()}
    theirs = [name for weight in family.weights(config) for name in weight.theirs]
    assert len(set(theirs)) == len(theirs)


def test_options_are_written_as_they_were_read(family):
    options = SIZES[family.model_type] | {"initializer_range": 0.5, "something": [1]}
    config = read_options(family, options)
    assert write_options(family, config, options) == (options, [])
    again, misfits = write_options(family, config)
    assert misfits == []
    assert read_options(family, again) == replace(
        config, num_kv_heads=config.num_kv_heads, d_head=again_head(config, again)
    )


def again_head(config, options):
    """LLaMA and Qwen write the width of a head, which may be left to be computed."""
    return options.get("head_dim", config.d_head)


def test_a_changed_option_is_written_over_the_old_one(family):
    options = SIZES[family.model_type]
    config = replace(read_options(family, options), activation=Activation.gelu_sigmoid, d_ff=44, encoder_d_ff=None)
    written, misfits = write_options(family, config, options)
    assert misfits == []
    assert read_options(family, written).activation is Activation.gelu_sigmoid
    assert read_options(family, written).d_ff == 44


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("relu", Activation.relu), ("gelu", Activation.gelu), ("gelu_new", Activation.gelu_tanh),
        ("gelu_pytorch_tanh", Activation.gelu_tanh), ("quick_gelu", Activation.gelu_sigmoid),
        ("silu", Activation.silu), ("swish", Activation.silu),
    ],
)  # fmt: skip
def test_names_of_non_linearities(word, meant):
    assert read_options(MARIAN, SIZES["marian"] | {"activation_function": word}).activation is meant
    assert read_options(LLAMA, SIZES["llama"] | {"hidden_act": word}).activation is meant


@pytest.mark.parametrize(
    ("shared", "tied", "tying"),
    [(True, True, Tying.three_way), (False, True, Tying.two_way), (False, False, Tying.none)],
)
def test_tables_that_marian_shares(shared, tied, tying):
    options = SIZES["marian"] | {"share_encoder_decoder_embeddings": shared, "tie_word_embeddings": tied}
    assert read_options(MARIAN, options).tying is tying
    assert write_options(MARIAN, read_options(MARIAN, options))[0]["tie_word_embeddings"] is tied


def test_widths_of_encoder_and_decoder():
    config = read_options(MARIAN, SIZES["marian"])
    assert (config.d_ff, config.encoder_d_ff, config.decoder_d_ff) == (20, None, 28)
    written = write_options(MARIAN, replace(config, encoder_d_ff=12, decoder_d_ff=None))[0]
    assert (written["encoder_ffn_dim"], written["decoder_ffn_dim"]) == (12, 20)


def test_defaults_are_those_of_the_family():
    gpt2 = read_options(GPT2, SIZES["gpt2"])
    assert (gpt2.d_ff, gpt2.tying, gpt2.norm_eps, gpt2.activation) == (96, Tying.two_way, 1e-5, Activation.gelu_tanh)
    llama = read_options(LLAMA, SIZES["llama"])
    assert (llama.norm_eps, llama.tying, llama.dropout, llama.rope.base) == (1e-6, Tying.none, 0.0, 10000.0)
    assert read_options(QWEN2, SIZES["llama"]).attention_bias is AttentionBias.qkv
    assert read_options(QWEN3, SIZES["llama"]).d_head == 128


@pytest.mark.parametrize(
    ("family", "changes", "said"),
    [
        (GPT2, {"scale_attn_weights": False}, "scale_attn_weights=false; this package computes with .*=true"),
        (GPT2, {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=true"),
        (GPT2, {"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn=true"),
        (GPT2, {"add_cross_attention": True}, "add_cross_attention=true"),
        (GPT2, {"activation_function": "tanh"}, "activation_function='tanh'; this package has relu, gelu, gelu_new"),
        (GPT2, {"n_head": None}, "option 'num_heads' is missing"),
        (LLAMA, {"quantization_config": {"bits": 4}}, r"quantization_config=\{'bits': 4\}; .*quantization_config=null"),
        (MARIAN, {"normalize_before": True}, "normalize_before=true"),
        (MARIAN, {"normalize_embedding": True}, "normalize_embedding=true"),
        (MARIAN, {"add_final_layer_norm": True}, "add_final_layer_norm=true"),
        (MARIAN, {"decoder_attention_heads": 2}, "encoder_attention_heads=4 and decoder_attention_heads=2; this"),
        (MARIAN, {"tie_word_embeddings": False}, "share_encoder_decoder_embeddings=true with tie_word"),
        (QWEN2, {"use_sliding_window": True, "max_window_layers": 1}, "use_sliding_window=true with sliding_window=40"),
        (QWEN3, {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types has 'sliding_attention'"),
    ],
)  # fmt: skip
def test_what_this_package_does_not_compute_is_refused_with_its_value(family, changes, said):
    with pytest.raises(ValueError, match=said):
        read_options(family, SIZES[family.model_type] | changes)


def test_a_window_that_no_layer_uses_is_no_obstacle():
    for changes in (
        {"sliding_window": 4096, "use_sliding_window": False},
        {"use_sliding_window": True, "max_window_layers": 28},
        {"use_sliding_window": True, "max_window_layers": 0, "sliding_window": None},
        {"layer_types": ["full_attention"] * 2},
    ):
        read_options(QWEN2, SIZES["qwen2"] | changes)


def test_a_missing_key_is_named():
    options = {key: value for key, value in SIZES["gpt2"].items() if key != "n_embd"}
    with pytest.raises(ValueError, match="n_embd is missing; expected it in every folder of this family"):
        read_options(GPT2, options)


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({}, RopeConfig()),
        ({"rope_theta": 500000}, RopeConfig(base=500000.0)),
        ({"rope_theta": 500.0, "rope_scaling": None}, RopeConfig(base=500.0)),
        ({"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}}, RopeConfig(base=500.0)),
        (
            {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2}},
            RopeConfig(base=500.0, scaling=RopeScaling.linear, factor=2.0),
        ),
        (
            {"rope_theta": 500.0, "rope_scaling": {"rope_type": "linear", "type": "linear", "factor": 2.0}},
            RopeConfig(base=500.0, scaling=RopeScaling.linear, factor=2.0),
        ),
        (
            {"rope_parameters": YARN | {"rope_theta": 500.0, "beta_fast": 16, "truncate": False}},
            RopeConfig(500.0, RopeScaling.yarn, 4.0, 32, beta_fast=16.0, truncate=False),
        ),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0}, "max_position_embeddings": 64},
            RopeConfig(10000.0, RopeScaling.yarn, 4.0, 64),
        ),
        (
            {"rope_parameters": YARN | {"factor": None}, "max_position_embeddings": 96},
            RopeConfig(10000.0, RopeScaling.yarn, 3.0, 32),
        ),
        (
            {"rope_parameters": YARN | {"mscale": 0.5, "mscale_all_dim": 0.8}},
            RopeConfig(10000.0, RopeScaling.yarn, 4.0, 32, attention_factor=1.0693147180559945 / 1.1109035488895913),
        ),
        (
            {"rope_parameters": YARN | {"attention_factor": 1.5, "mscale": 0.5, "mscale_all_dim": 0.8}},
            RopeConfig(10000.0, RopeScaling.yarn, 4.0, 32, attention_factor=1.5),
        ),
        (
            {
                "rope_theta": 500.0,
                "rope_scaling": {
                    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8192,
                },
            },
            RopeConfig(500.0, RopeScaling.llama3, 8.0, 8192, low_freq_factor=1.0, high_freq_factor=4.0),
        ),
    ],
)  # fmt: skip
def test_rotary_positions_in_all_the_ways_they_are_written(written, meant):
    options = SIZES["llama"] | written
    config = read_options(LLAMA, options)
    assert config.rope == meant
    assert write_options(LLAMA, config, options)[0] == options
    anew = write_options(LLAMA, replace(config, rope=replace(meant, base=77.0)), options)[0]
    assert read_options(LLAMA, anew).rope == replace(meant, base=77.0)
    assert "rope_scaling" not in anew
    assert "rope_theta" not in anew


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type='dynamic'; this package has default, linear"),
        ({"rope_parameters": {"rope_type": "longrope", "short_factor": [1]}}, "rope_type='longrope'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5; this package turns whole heads"),
        ({"rope_parameters": {"mrope_section": [1]}}, r"mrope_section=\[1\] for rope_type='default'; .* no such"),
        ({"rope_parameters": {"rope_type": "linear"}}, "rope_type='linear' without a factor"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "rope.scaling=llama3 needs rope.original_posit"),
    ],
)
def test_rotary_positions_that_this_package_lacks_are_refused(written, said):
    with pytest.raises(ValueError, match=said):
        read_options(LLAMA, SIZES["llama"] | written)


def test_what_does_not_fit_is_told_for_every_option(families):
    misfits = write_options(GPT2, families("modern"))[1]
    assert misfits == [
        "architecture=encoder_decoder; needs decoder_only", "num_encoder_layers=1; needs 0",
        "scale_embedding=true; needs false", "norm=rms_norm; needs layer_norm", "positions=rope; needs learned",
        "attention_bias=none; needs all", "feed_forward_bias=false; needs true", "gated=true; needs false",
        "num_kv_heads=2; needs as many as num_heads=4",
    ]  # fmt: skip
