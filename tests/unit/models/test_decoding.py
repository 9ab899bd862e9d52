"""seq2seq.models.decoding: the same products from a matrix that is kept in both forms."""

import copy

import pytest
import torch
from torch.nn.functional import linear

from seq2seq.config import Architecture, ModelConfig, Tying
from seq2seq.models import build_model, estimated
from seq2seq.models import decoding as module
from seq2seq.models.decoding import FEW, TurnedLinear, prepare_for_decoding
from seq2seq.models.estimated import FEWEST

V, B, S, T = 13, 2, 5, 3


def build(**changes):
    torch.manual_seed(3)
    sizes = {"d_model": 8, "num_heads": 2, "d_ff": 12, "num_encoder_layers": 1, "num_decoder_layers": 2}
    return build_model(ModelConfig(**sizes | changes), V, V).eval()


@pytest.fixture(params=["encoder_decoder", "decoder_only", "bias"])
def model(request):
    if request.param == "decoder_only":
        return build(architecture=Architecture.decoder_only, num_encoder_layers=0, tying=Tying.two_way)
    return build(output_bias=request.param == "bias")


@pytest.mark.parametrize("sentences", [B, FEW])
def test_a_model_with_turned_matrices_computes_the_same_for_few_rows_and_for_many(model, sentences):
    src, valid = torch.randint(4, V, (sentences, S)), torch.ones(sentences, S, dtype=torch.bool)
    tgt_in = torch.randint(4, V, (sentences, T))
    expected = model(src, valid, tgt_in)
    names = list(model.state_dict())
    prepare_for_decoding(model)
    assert sum(isinstance(part, TurnedLinear) for part in model.modules()) > 3
    torch.testing.assert_close(model(src, valid, tgt_in), expected)
    pieces = torch.tensor([2, 7, 9])
    hidden = torch.randn(4, 8)
    narrow = model.projected_onto(pieces)
    torch.testing.assert_close(narrow(hidden), model.logits(hidden)[:, pieces])
    assert list(model.state_dict()) == names


def test_weights_that_change_or_move_are_followed(model):
    prepare_for_decoding(model)
    layer = next(part for part in model.modules() if isinstance(part, TurnedLinear))
    x = torch.randn(3, layer.weight.shape[1])
    layer(x)
    with torch.no_grad():
        layer.weight.mul_(2)
    torch.testing.assert_close(layer(x), linear(x, layer.weight, layer.bias))
    twin = copy.deepcopy(model).double()
    hidden = torch.randn(3, 8, dtype=torch.float64)
    torch.testing.assert_close(twin.logits(hidden), linear(hidden, twin.output, twin.output_bias))


def test_other_precisions_and_large_models_are_left_alone(model, monkeypatch):
    prepare_for_decoding(model.double())
    assert not any(isinstance(part, TurnedLinear) for part in model.modules())
    monkeypatch.setattr(module, "MOST_WEIGHTS", 100)
    prepare_for_decoding(model.float())
    assert model.projection is None


def test_best_pieces_are_estimated_where_the_cpu_is_made_for_it(model, monkeypatch):
    monkeypatch.setattr(module, "fast_bfloat16", lambda: False)
    other = copy.deepcopy(model)
    prepare_for_decoding(other)
    assert other.estimated is None
    monkeypatch.setattr(module, "fast_bfloat16", lambda: True)
    monkeypatch.setattr(estimated, "MOST_IN_QUESTION", V)
    prepare_for_decoding(model)
    src, valid = torch.randint(4, V, (FEWEST, S)), torch.ones(FEWEST, S, dtype=torch.bool)
    tokens = torch.randint(4, V, (FEWEST, 1))
    with torch.no_grad():
        logits, _ = model.step(tokens, model.start(src, valid))
        estimates, _ = model.estimated_step(tokens, model.start(src, valid))
        best = estimates.best()
        assert best.tolist() == logits.argmax(1, keepdim=True).tolist()
        torch.testing.assert_close(estimates.logits(), logits)
        few, _ = model.estimated_step(tokens[1:], model.start(src[1:], valid[1:]))
        assert isinstance(few, torch.Tensor)
        twin = copy.deepcopy(model).double()
        assert isinstance(twin.estimated_step(tokens, twin.start(src, valid))[0], torch.Tensor)
