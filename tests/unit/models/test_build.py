"""seq2seq.models.build: sizes, tying and the parameter counts of the paper's models."""

from pathlib import Path

import pytest
import torch
import yaml

from seq2seq.config import ModelConfig, Tying, from_dict
from seq2seq.models import build_model
from seq2seq.models.build import embedding_rows

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
