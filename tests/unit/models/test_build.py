"""seq2seq.models.build: sizes, options, tying, and the parameter counts of published models."""

from pathlib import Path

import pytest
import torch
import yaml

from seq2seq.config import (
    Activation,
    Architecture,
    AttentionBias,
    ModelConfig,
    NormKind,
    NormPlacement,
    PositionKind,
    RopeConfig,
    Tying,
    from_dict,
)
from seq2seq.models import DecoderOnly, EncoderDecoder, build_model
from seq2seq.models.build import block_options, embedding_rows
from seq2seq.nn.attention import Heads
from seq2seq.nn.norm import RMSNorm
from seq2seq.nn.positions import LearnedPositions, SinusoidalPositions

CONF = Path(__file__).parents[3] / "conf" / "model"
D, H, F, V = 8, 2, 12, 11
PAPER_VOCABULARY = 37_000


def sizes(**changes):
    values = {"d_model": D, "num_heads": H, "d_ff": F, "num_encoder_layers": 2, "num_decoder_layers": 3}
    return ModelConfig(**(values | changes))


def configured(name):
    return from_dict(ModelConfig, yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8")))


def formula(config, num_tables, vocab_size):
    """Parameters by the counting formulas, biases and norms included."""
    d, f = config.d_model, config.d_ff
    attention = 4 * d * d + 4 * d
    feed_forward = 2 * d * f + f + d
    norm = 2 * d
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    return (
        num_tables * vocab_size * d
        + config.num_encoder_layers * encoder_layer
        + config.num_decoder_layers * decoder_layer
    )


def build_without_memory(config, vocab_size):
    with torch.device("meta"):
        return build_model(config, vocab_size, vocab_size)


@pytest.mark.parametrize(
    ("name", "count", "millions"),
    [("transformer_base", 63_082_496, 63), ("transformer_big", 214_245_376, 213)],
)
def test_the_papers_models_have_the_papers_parameter_counts(name, count, millions):
    config = configured(name)
    model = build_without_memory(config, PAPER_VOCABULARY)
    assert model.num_parameters() == count == formula(config, 1, PAPER_VOCABULARY)
    assert count / 1e6 == pytest.approx(millions, rel=0.01)


@pytest.mark.parametrize("name", ["transformer_base", "transformer_big", "transformer_small"])
def test_in_the_standard_block_the_feed_forward_network_holds_two_thirds(name):
    model = build_without_memory(configured(name), PAPER_VOCABULARY)
    for layer in model.encoder.layers:
        inside = sum(p.numel() for p in layer.feed_forward.parameters())
        assert inside / sum(p.numel() for p in layer.parameters()) == pytest.approx(2 / 3, abs=0.005)


@pytest.mark.parametrize(("tying", "num_tables"), [(Tying.three_way, 1), (Tying.two_way, 2), (Tying.none, 3)])
def test_tied_tables_are_counted_once(tying, num_tables):
    config = sizes(tying=tying)
    assert build_model(config, V, V).num_parameters() == formula(config, num_tables, V)


def test_the_layers_asked_for_are_built_each_for_itself():
    model = build_model(sizes(), V, V)
    assert len(model.encoder.layers) == 2
    assert len(model.decoder.layers) == 3
    assert not torch.equal(
        model.encoder.layers[0].feed_forward.inner.weight, model.encoder.layers[1].feed_forward.inner.weight
    )


def test_dropout_stands_where_it_is_configured():
    model = build_model(sizes(dropout=0.1, attention_dropout=0.2, activation_dropout=0.3), V, V)
    for part in (model.encoder, model.decoder):
        assert part.embedding.dropout.p == 0.1
        for layer in part.layers:
            assert layer.dropout.p == 0.1
            assert layer.self_attention.heads.dropout == 0.2
            assert layer.feed_forward.dropout.p == 0.3
    assert {layer.cross_attention.heads.dropout for layer in model.decoder.layers} == {0.2}


def test_the_norms_get_the_configured_epsilon():
    model = build_model(sizes(norm_eps=0.25), V, V)
    norms = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert len(norms) == 2 * 2 + 3 * 3
    assert {norm.eps for norm in norms} == {0.25}


@pytest.mark.parametrize(("pieces", "multiple", "rows"), [(11, 1, 11), (11, 8, 16), (16, 8, 16), (17, 8, 24)])
def test_rows_are_rounded_up_to_the_multiple(pieces, multiple, rows):
    assert embedding_rows(pieces, multiple) == rows
    model = build_model(sizes(vocab_multiple=multiple), pieces, pieces)
    assert model.output.shape == (rows, D)
    assert model.encoder.embedding.rows.num_embeddings == rows


@pytest.mark.parametrize("tying", [Tying.two_way, Tying.none])
def test_two_vocabularies_of_different_size_are_fine_without_three_way_tying(tying):
    model = build_model(sizes(tying=tying), V, V + 2)
    src, valid, tgt_in = torch.tensor([[4, V - 1]]), torch.ones(1, 2, dtype=torch.bool), torch.tensor([[1, V + 1, 5]])
    assert model(src, valid, tgt_in).shape == (1, 3, V + 2)


def test_three_way_tying_of_two_vocabularies_is_refused():
    message = "tying=three_way needs one joint vocabulary, got 11 source and 13 target pieces; train a joint tokenizer"
    with pytest.raises(ValueError, match=message):
        build_model(sizes(tying=Tying.three_way), 11, 13)


def test_decoder_only_needs_one_vocabulary():
    config = sizes(architecture=Architecture.decoder_only, num_encoder_layers=0, tying=Tying.two_way)
    message = (
        "architecture=decoder_only needs one joint vocabulary, got 11 source and 13 target pieces; train a joint tok"
    )
    with pytest.raises(ValueError, match=message):
        build_model(config, 11, 13)


def of(config):
    return build_model(config, V, V)


def alone(**changes):
    values = {"architecture": Architecture.decoder_only, "num_encoder_layers": 0, "tying": Tying.two_way}
    return sizes(**(values | changes))


def test_each_option_of_the_blocks_reaches_them():
    config = sizes(
        num_heads=6,
        num_kv_heads=3,
        d_head=4,
        encoder_d_ff=10,
        decoder_d_ff=14,
        dropout=0.1,
        attention_dropout=0.2,
        activation_dropout=0.3,
        norm=NormKind.rms_norm,
        norm_placement=NormPlacement.pre,
        norm_eps=0.25,
        qk_norm=True,
        attention_bias=AttentionBias.qkv,
        feed_forward_bias=False,
        activation=Activation.silu,
        gated=True,
    )
    for encoder, d_ff in ((True, 10), (False, 14)):
        options = block_options(config, encoder=encoder)
        assert options.heads == Heads(D, 6, 3, 4, AttentionBias.qkv, norm_eps=0.25, dropout=0.2)
        assert (options.d_ff, options.activation, options.gated) == (d_ff, Activation.silu, True)
        assert (options.feed_forward_bias, options.norm, options.norm_eps) == (False, NormKind.rms_norm, 0.25)
        assert (options.norm_placement, options.residual_scale) == (NormPlacement.pre, 1.0)
        assert (options.dropout, options.activation_dropout) == (0.1, 0.3)
    model = of(config)
    assert model.encoder.layers[0].feed_forward.output.weight.shape == (D, 10)
    assert model.decoder.layers[0].feed_forward.output.weight.shape == (D, 14)
    assert isinstance(model.encoder.final_norm, RMSNorm)
    assert isinstance(model.decoder.final_norm, RMSNorm)


def test_without_their_own_width_both_feed_forward_networks_have_the_common_one():
    for encoder in (True, False):
        options = block_options(sizes(), encoder=encoder)
        assert (options.d_ff, options.heads.norm_eps) == (F, None)


def test_deepnorm_scales_encoder_and_decoder_by_their_own_factors():
    config = sizes(norm_placement=NormPlacement.deepnorm, num_encoder_layers=18, num_decoder_layers=18)
    assert block_options(config, encoder=True).residual_scale == pytest.approx(1.998746, abs=1e-6)
    assert block_options(config, encoder=False).residual_scale == pytest.approx(2.710806, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "added", "halves"),
    [
        (PositionKind.sinusoidal, SinusoidalPositions, False),
        (PositionKind.sinusoidal_halves, SinusoidalPositions, True),
        (PositionKind.learned, LearnedPositions, None),
    ],
    ids=lambda value: value.name if isinstance(value, PositionKind) else "",
)
def test_added_positions_stand_in_each_embedding_and_nothing_turns(kind, added, halves):
    model = of(sizes(positions=kind, max_positions=7))
    for stack in (model.encoder, model.decoder):
        assert type(stack.embedding.positions) is added
        assert getattr(stack.embedding.positions, "halves", None) is halves
        assert stack.rotary is None
    if kind is PositionKind.learned:
        tables = [stack.embedding.positions.table.weight for stack in (model.encoder, model.decoder)]
        assert tables[0].shape == (7, D)
        assert tables[0] is not tables[1]


def test_rotary_positions_have_the_heads_width_and_nothing_is_added():
    rope = RopeConfig(base=500.0)
    model = of(sizes(positions=PositionKind.rope, rope=rope, d_head=6))
    for stack in (model.encoder, model.decoder):
        assert stack.embedding.positions is None
        assert (stack.rotary.d_head, stack.rotary.config) == (6, rope)


@pytest.mark.parametrize("scaled", [True, False])
def test_embeddings_are_scaled_where_that_is_configured(scaled):
    model = of(sizes(scale_embedding=scaled))
    assert model.encoder.embedding.scale == model.decoder.embedding.scale == pytest.approx(D**0.5 if scaled else 1.0)


def test_an_output_bias_has_an_entry_for_every_row_and_is_added_to_the_logits():
    model = of(sizes(output_bias=True, vocab_multiple=8)).requires_grad_(False)
    hidden = torch.randn(2, 3, D)
    plain = model.logits(hidden)
    model.output_bias.copy_(torch.arange(16.0))
    torch.testing.assert_close(model.logits(hidden), plain + torch.arange(16.0))
    assert of(sizes()).output_bias is None


@pytest.mark.parametrize("placement", list(NormPlacement), ids=lambda placement: placement.name)
def test_only_pre_ln_stacks_have_a_norm_after_the_last_block(placement):
    for model in (of(sizes(norm_placement=placement)), of(alone(norm_placement=placement))):
        for stack in (getattr(model, "encoder", model.decoder), model.decoder):
            expected = torch.nn.LayerNorm if placement is NormPlacement.pre else torch.nn.Identity
            assert type(stack.final_norm) is expected


def test_the_architecture_decides_the_class():
    assert type(of(sizes())) is EncoderDecoder
    model = of(alone(prefix_lm=True))
    assert type(model) is DecoderOnly
    assert model.prefix_lm
    assert not of(alone()).prefix_lm
    assert {name.split(".")[0] for name, _ in model.named_parameters(remove_duplicate=False)} == {"decoder", "output"}
    assert model.source_rows == V


LLAMA = {
    "architecture": Architecture.decoder_only,
    "num_encoder_layers": 0,
    "tying": Tying.none,
    "norm": NormKind.rms_norm,
    "norm_placement": NormPlacement.pre,
    "positions": PositionKind.rope,
    "scale_embedding": False,
    "attention_bias": AttentionBias.none,
    "feed_forward_bias": False,
    "activation": Activation.silu,
    "gated": True,
}
QWEN_3 = LLAMA | {"qk_norm": True, "d_head": 128, "num_kv_heads": 8, "tying": Tying.two_way}
PUBLISHED = {
    "LLaMA 2 7B": (LLAMA, (4096, 32, 11_008, 32), 32_000, 6_738_415_616),
    "LLaMA 3 8B": (LLAMA | {"num_kv_heads": 8}, (4096, 32, 14_336, 32), 128_256, 8_030_261_248),
    "Qwen 2 0.5B": (
        LLAMA | {"num_kv_heads": 2, "attention_bias": AttentionBias.qkv, "tying": Tying.two_way},
        (896, 14, 4864, 24),
        151_936,
        494_032_768,
    ),
    "Qwen 3 0.6B": (QWEN_3, (1024, 16, 3072, 28), 151_936, 596_049_920),
}
"""What differs from this package's defaults, then D, H, F and layers; vocabulary; parameters that their files hold."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_decoder_only_models_have_their_parameter_counts(name):
    changes, (d_model, num_heads, d_ff, num_layers), vocab_size, count = PUBLISHED[name]
    config = ModelConfig(d_model, num_heads, d_ff, num_decoder_layers=num_layers, **changes)
    assert build_without_memory(config, vocab_size).num_parameters() == count


def test_gpt2_has_its_parameter_count():
    conf = yaml.safe_load((CONF / "gpt_tiny.yaml").read_text(encoding="utf-8"))
    base = yaml.safe_load((CONF / "gpt_base.yaml").read_text(encoding="utf-8"))
    config = from_dict(ModelConfig, {name: value for name, value in (conf | base).items() if name != "defaults"})
    assert build_without_memory(config, 50_257).num_parameters() == 124_439_808
