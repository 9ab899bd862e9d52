"""seq2seq.nn.initialization: ranges of the first weights, part by part."""

import math

import pytest
import torch

from seq2seq.config import ModelConfig, Tying
from seq2seq.models import build_model

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
