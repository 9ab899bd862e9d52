"""seq2seq.nn.initialization: the first weights, part by part, for each placement of the norm."""

import math

import pytest
import torch

from seq2seq.config import Activation, Architecture, ModelConfig, NormPlacement, PositionKind, Tying
from seq2seq.models import build_model
from seq2seq.nn.initialization import DeepNorm

D, F, V = 64, 96, 500


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(7)
    sizes = ModelConfig(
        d_model=D, num_heads=4, d_ff=F, num_encoder_layers=2, num_decoder_layers=2, tying=Tying.none, dropout=0.0
    )
    return build_model(sizes, V, V + 1).eval()


def assert_uniform(weight, bound):
    assert weight.abs().max().item() <= bound
    assert weight.abs().max().item() > 0.97 * bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_queries_keys_and_values_are_drawn_as_if_the_three_were_one_matrix(model):
    bound = math.sqrt(6 / (D + 3 * D))
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        for part in layer.self_attention.query_key_value.weight.chunk(3):
            assert_uniform(part, bound)
    for layer in model.decoder.layers:
        assert_uniform(layer.cross_attention.query.weight, bound)
        for part in layer.cross_attention.key_value.weight.chunk(2):
            assert_uniform(part, bound)


def test_the_other_matrices_are_xavier_uniform(model):
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        assert_uniform(layer.self_attention.output.weight, math.sqrt(6 / (D + D)))
        assert_uniform(layer.feed_forward.inner.weight, math.sqrt(6 / (D + F)))
        assert_uniform(layer.feed_forward.output.weight, math.sqrt(6 / (F + D)))


def test_biases_are_zero_and_norms_start_as_the_identity(model):
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            assert torch.equal(parameter, torch.ones(D)), name
        elif name.endswith("bias"):
            assert not parameter.any(), name


def test_embedding_rows_and_output_have_deviation_one_over_root_d(model):
    for table in (model.encoder.embedding.rows.weight, model.decoder.embedding.rows.weight, model.output):
        assert table.std().item() == pytest.approx(D**-0.5, rel=0.02)
        assert table.mean().item() == pytest.approx(0, abs=0.003)


def test_untied_tables_are_drawn_apart(model):
    assert not torch.equal(model.decoder.embedding.rows.weight, model.output)


def test_the_seed_decides_all_weights():
    sizes = ModelConfig(d_model=8, num_heads=2, d_ff=12, num_encoder_layers=1, num_decoder_layers=1)
    states = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        states.append(build_model(sizes, 11, 11).state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["output"], states[2]["output"])


@pytest.mark.parametrize("tying", list(Tying))
def test_logits_have_about_unit_variance_at_the_start_at_depth_six(tying):
    torch.manual_seed(8)
    sizes = ModelConfig(
        d_model=D, num_heads=4, d_ff=4 * D, num_encoder_layers=6, num_decoder_layers=6, dropout=0.0, tying=tying
    )
    model = build_model(sizes, V, V).eval()
    src, tgt_in = torch.randint(4, V, (8, 9)), torch.randint(4, V, (8, 7))
    with torch.no_grad():
        logits = model(src, torch.ones(8, 9, dtype=torch.bool), tgt_in)
    assert 0.7 < logits.var().item() < 1.5


def config(placement, num_encoder_layers, num_decoder_layers, **changes):
    sizes = {"d_model": D, "num_heads": 4, "d_ff": F, "dropout": 0.0, "tying": Tying.two_way}
    if num_encoder_layers == 0:
        sizes["architecture"] = Architecture.decoder_only
    depths = {"num_encoder_layers": num_encoder_layers, "num_decoder_layers": num_decoder_layers}
    return ModelConfig(norm_placement=placement, **(sizes | depths | changes))


def seeded(config, seed=7):
    torch.manual_seed(seed)
    return build_model(config, V, V).eval().requires_grad_(False)


def stacks(model):
    return [stack for stack in (getattr(model, "encoder", None), model.decoder) if stack is not None]


def assert_normal(weight, deviation):
    assert weight.std().item() == pytest.approx(deviation, rel=0.05)
    assert weight.abs().max().item() > 2.9 * deviation  # a uniform draw ends at 1.73
    assert weight.mean().item() == pytest.approx(0, abs=deviation / 10)


@pytest.mark.parametrize(("num_encoder_layers", "num_decoder_layers"), [(2, 3), (0, 5)])
def test_pre_ln_matrices_are_normal_and_those_added_to_the_stream_smaller_by_the_root_of_the_sublayers(
    num_encoder_layers, num_decoder_layers
):
    model = seeded(config(NormPlacement.pre, num_encoder_layers, num_decoder_layers))
    cross = num_encoder_layers > 0
    for stack, sublayers in zip(stacks(model), [2 * 2, 3 * 3] if cross else [2 * 5], strict=True):
        smaller = 1 / math.sqrt(sublayers)
        for block in stack.layers:
            assert_normal(block.self_attention.query_key_value.weight, math.sqrt(2 / (D + 3 * D)))
            assert_normal(block.self_attention.output.weight, smaller * math.sqrt(2 / (D + D)))
            assert_normal(block.feed_forward.inner.weight, math.sqrt(2 / (D + F)))
            assert_normal(block.feed_forward.output.weight, smaller * math.sqrt(2 / (D + F)))
        if stack is model.decoder and cross:
            for block in stack.layers:
                assert_normal(block.cross_attention.query.weight, math.sqrt(2 / (D + D)))
                assert_normal(block.cross_attention.key_value.weight, math.sqrt(2 / (D + 2 * D)))
                assert_normal(block.cross_attention.output.weight, smaller * math.sqrt(2 / (D + D)))


def test_a_wide_pre_ln_model_has_gpt2s_deviations():
    sizes = {"d_model": 1600, "num_heads": 4, "num_kv_heads": 1, "d_head": 900, "d_ff": 99, "scale_embedding": False}
    model = seeded(config(NormPlacement.pre, 0, 1, positions=PositionKind.learned, max_positions=30, **sizes))
    block = model.decoder.layers[0]
    assert_normal(block.self_attention.query_key_value.weight, 0.02)
    assert_normal(block.self_attention.output.weight, 0.02 / math.sqrt(2))
    assert_normal(model.decoder.embedding.rows.weight, 0.02)
    assert_normal(model.decoder.embedding.positions.table.weight, 0.02)


def test_learned_positions_are_drawn_as_embedding_rows_are():
    model = seeded(config(NormPlacement.post, 2, 2, positions=PositionKind.learned, max_positions=300))
    for stack in stacks(model):
        assert_normal(stack.embedding.positions.table.weight, D**-0.5)


@pytest.mark.parametrize("scale_embedding", [True, False])
def test_an_untied_output_is_drawn_as_embedding_rows_are(scale_embedding):
    model = seeded(config(NormPlacement.pre, 0, 1, tying=Tying.none, scale_embedding=scale_embedding))
    assert_normal(model.output, D**-0.5 if scale_embedding else 0.02)


def test_biases_are_zero_and_norms_the_identity_in_every_placement():
    for placement in NormPlacement:
        model = seeded(config(placement, 2, 3, qk_norm=True, output_bias=True))
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                assert torch.equal(parameter, torch.ones_like(parameter)), name
            elif name.endswith("bias"):
                assert not parameter.any(), name


@pytest.mark.parametrize(
    ("num_encoder_layers", "num_decoder_layers", "expected"),
    [
        # 0.81 (N^4 M)^(1/16), 0.87 (N^4 M)^(-1/16); (3M)^(1/4), (12M)^(-1/4)
        (18, 18, DeepNorm(1.998746, 0.352571, 2.710806, 0.260847)),
        (6, 6, DeepNorm(1.417938, 0.496989, 2.059767, 0.343295)),
        (4, 2, DeepNorm(1.196229, 0.589101, 1.565085, 0.451801)),
        (100, 100, DeepNorm(3.415742, 0.206310, 4.161791, 0.169904)),
        # one stack: (2M)^(1/4), (8M)^(-1/4)
        (0, 8, DeepNorm(1.0, 1.0, 2.0, 0.353553)),
        (0, 48, DeepNorm(1.0, 1.0, 3.130169, 0.225901)),
    ],
)
def test_deepnorms_factors_are_those_of_the_papers_table(num_encoder_layers, num_decoder_layers, expected):
    """Golden numbers by hand from the formulas of figure 2 of arXiv:2203.00555, which stand beside them."""
    made = DeepNorm.of(config(NormPlacement.deepnorm, num_encoder_layers, num_decoder_layers))
    for name in ("encoder_scale", "encoder_gain", "decoder_scale", "decoder_gain"):
        assert getattr(made, name) == pytest.approx(getattr(expected, name), abs=2e-6), name


@pytest.mark.parametrize(("num_encoder_layers", "num_decoder_layers"), [(4, 2), (0, 8)])
def test_deepnorm_scales_the_stream_up_and_all_but_queries_and_keys_down(num_encoder_layers, num_decoder_layers):
    options = config(NormPlacement.deepnorm, num_encoder_layers, num_decoder_layers)
    model, deep = seeded(options), DeepNorm.of(options)
    factors = [(deep.encoder_scale, deep.encoder_gain), (deep.decoder_scale, deep.decoder_gain)]
    for stack, (scale, gain) in zip(stacks(model), factors if num_encoder_layers else factors[1:], strict=True):
        for block in stack.layers:
            assert block.residual.scale == scale
            query, key, value = block.self_attention.query_key_value.weight.chunk(3)
            parts = [(query, 1.0), (key, 1.0), (value, gain), (block.self_attention.output.weight, gain)]
            parts += [(block.feed_forward.inner.weight, gain), (block.feed_forward.output.weight, gain)]
            if hasattr(block, "cross_attention"):
                key, value = block.cross_attention.key_value.weight.chunk(2)
                parts += [(block.cross_attention.query.weight, 1.0), (key, 1.0), (value, gain)]
                parts += [(block.cross_attention.output.weight, gain)]
            for weight, its_gain in parts:
                assert_uniform(weight, its_gain * math.sqrt(6 / sum(weight.shape)))


def test_grouped_queries_keys_and_values_are_drawn_each_for_itself():
    model = seeded(config(NormPlacement.post, 2, 2, num_kv_heads=2))
    query, key, value = model.encoder.layers[0].self_attention.query_key_value.weight.split([D, D // 2, D // 2])
    for part in (query, key, value):
        assert_uniform(part, math.sqrt(0.5) * math.sqrt(6 / sum(part.shape)))


def streams(model, src, tgt_in):
    """Variance of what each stack's last block gives."""
    found = []
    for stack in stacks(model):
        stack.layers[-1].register_forward_hook(lambda _, args, out: found.append(out.var().item()))
    model(src, torch.ones(src.shape, dtype=torch.bool), tgt_in)
    return found


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize("num_stacks", [2, 1], ids=["encoder_decoder", "decoder_only"])
def test_the_variance_of_a_pre_ln_stream_at_the_start_does_not_grow_with_depth(num_stacks, gated):
    src, tgt_in = torch.randint(4, V, (8, 9)), torch.randint(4, V, (8, 7))
    activation = Activation.silu if gated else Activation.relu
    found = {}
    for depth in (1, 4, 16):
        sizes = config(NormPlacement.pre, depth if num_stacks == 2 else 0, depth, gated=gated, activation=activation)
        found[depth] = streams(seeded(sizes), src, tgt_in)
    for stack in range(num_stacks):
        assert 1 < found[1][stack] < 3
        assert found[16][stack] == pytest.approx(found[1][stack], rel=0.3)
        assert found[16][stack] == pytest.approx(found[4][stack], rel=0.2)


@pytest.mark.parametrize("placement", [NormPlacement.pre, NormPlacement.deepnorm])
@pytest.mark.parametrize("num_encoder_layers", [12, 0])
def test_logits_have_about_unit_variance_at_the_start_in_deep_stacks(placement, num_encoder_layers):
    model = seeded(config(placement, num_encoder_layers, 12))
    src, tgt_in = torch.randint(4, V, (8, 9)), torch.randint(4, V, (8, 7))
    logits = model(src, torch.ones(8, 9, dtype=torch.bool), tgt_in)
    assert 0.7 < logits.var().item() < 1.5
