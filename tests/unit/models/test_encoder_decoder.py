"""seq2seq.models: shapes of whole passes, Post-LN written out, attention maps."""

import copy
import math

import pytest
import torch

from seq2seq.config import ModelConfig
from seq2seq.models import build_model
from seq2seq.nn.masks import padding_mask
from seq2seq.nn.positions import Places

B, S, T, D, H, F, V = 2, 5, 3, 8, 2, 12, 11
NUM_ENCODER_LAYERS, NUM_DECODER_LAYERS = 2, 4
VALID = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)
PLACES = Places(torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, 2, 2]]), S)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    sizes = ModelConfig(
        d_model=D,
        num_heads=H,
        d_ff=F,
        num_encoder_layers=NUM_ENCODER_LAYERS,
        num_decoder_layers=NUM_DECODER_LAYERS,
        dropout=0.3,
    )
    model = build_model(sizes, V, V).double().eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model


@pytest.fixture
def src():
    torch.manual_seed(2)
    return torch.randint(4, V, (B, S))


@pytest.fixture
def tgt_in():
    torch.manual_seed(3)
    return torch.randint(4, V, (B, T))


@pytest.mark.parametrize(
    ("batch", "source", "target", "width", "heads", "inner", "vocabulary"),
    [(2, 4, 4, 8, 2, 32, 10_000), (2, 128, 128, 768, 12, 3072, 50)],
)
def test_the_worked_models_shapes(batch, source, target, width, heads, inner, vocabulary):
    sizes = ModelConfig(d_model=width, num_heads=heads, d_ff=inner, num_encoder_layers=1, num_decoder_layers=1)
    model = build_model(sizes, vocabulary, vocabulary).eval()
    src, tgt_in = torch.randint(4, 50, (batch, source)), torch.randint(4, 50, (batch, target))
    valid = torch.ones(batch, source, dtype=torch.bool)
    seen = {}
    inside = model.encoder.layers[0].feed_forward
    inside.inner.register_forward_hook(lambda _, args, out: seen.update({"inner": out.shape}))
    inside.output.register_forward_hook(lambda _, args, out: seen.update({"output": out.shape}))
    with torch.inference_mode():
        assert model.encoder.embedding(src, Places.span(0, source)).shape == (batch, source, width)
        assert model.encoder(src, valid).shape == (batch, source, width)
        assert model.decode(src, valid, tgt_in).shape == (batch, target, width)
        assert model(src, valid, tgt_in).shape == (batch, target, vocabulary)
        last, state = model.step(tgt_in, model.start(src, valid))
    assert last.shape == (batch, vocabulary)
    assert state.history.cache.seen(0, target).key.shape == (batch, heads, target, width // heads)
    assert seen == {"inner": (batch, source, inner), "output": (batch, source, width)}


def test_the_encoder_is_post_ln_written_out(model, src):
    mask = padding_mask(VALID)
    x = model.encoder.embedding(src, PLACES)
    for layer in model.encoder.layers:
        x = layer.self_attention_norm(x + layer.self_attention(x, mask))
        x = layer.feed_forward_norm(x + layer.feed_forward(x))
    torch.testing.assert_close(model.encoder(src, VALID), x, atol=1e-12, rtol=0)


def test_the_decoder_is_post_ln_written_out(model, src, tgt_in):
    mask, memory = padding_mask(VALID), model.encoder(src, VALID)
    x = model.decoder.embedding(tgt_in, Places.span(0, T))
    for layer in model.decoder.layers:
        x = layer.self_attention_norm(x + layer.self_attention(x, causal=True))
        x = layer.cross_attention_norm(x + layer.cross_attention(x, layer.cross_attention.keys_values(memory), mask))
        x = layer.feed_forward_norm(x + layer.feed_forward(x))
    torch.testing.assert_close(model.decode(src, VALID, tgt_in), x, atol=1e-12, rtol=0)
    torch.testing.assert_close(model(src, VALID, tgt_in), x @ model.output.T, atol=1e-12, rtol=0)


def written_out_maps(model, src, tgt_in):
    """Every layer's weights from the projections, softmax by hand; contexts too from these weights."""

    def weights(query, key, allowed):
        scores = torch.einsum("bhtk,bhsk->bhts", query, key) / math.sqrt(D // H)
        exponentials = scores.exp() * allowed
        return exponentials / exponentials.sum(-1, keepdim=True)

    def attend(layer, attention, value):
        return layer.output(torch.einsum("bhts,bhsk->bthk", attention, value).flatten(2))

    maps = {"encoder": [], "decoder": [], "cross": []}
    x = model.encoder.embedding(src, PLACES)
    for layer in model.encoder.layers:
        query, key, value = layer.self_attention.project(x)
        maps["encoder"].append(weights(query, key, VALID[:, None, None, :]))
        x = layer.self_attention_norm(x + attend(layer.self_attention, maps["encoder"][-1], value))
        x = layer.feed_forward_norm(x + layer.feed_forward(x))
    memory, x = x, model.decoder.embedding(tgt_in, Places.span(0, T))
    for layer in model.decoder.layers:
        query, key, value = layer.self_attention.project(x)
        maps["decoder"].append(weights(query, key, torch.ones(T, T).tril()))
        x = layer.self_attention_norm(x + attend(layer.self_attention, maps["decoder"][-1], value))
        source = layer.cross_attention.keys_values(memory)
        query = layer.cross_attention.query(x).unflatten(-1, (H, -1)).transpose(1, 2)
        maps["cross"].append(weights(query, source.key, VALID[:, None, None, :]))
        x = layer.cross_attention_norm(x + attend(layer.cross_attention, maps["cross"][-1], source.value))
        x = layer.feed_forward_norm(x + layer.feed_forward(x))
    return maps


def test_attention_maps_equal_weights_written_out(model, src, tgt_in):
    maps = model.attention_maps(src, VALID, tgt_in)
    for name, expected in written_out_maps(model, src, tgt_in).items():
        actual = getattr(maps, name)
        assert len(actual) == len(expected)
        for layer in range(len(expected)):
            torch.testing.assert_close(actual[layer], expected[layer], atol=1e-10, rtol=0)


def test_attention_maps_have_rows_that_sum_to_one_over_the_keys_that_may_be_seen(model, src, tgt_in):
    maps = model.attention_maps(src, VALID, tgt_in)
    assert [tuple(m.shape) for m in maps.encoder] == [(B, H, S, S)] * NUM_ENCODER_LAYERS
    assert [tuple(m.shape) for m in maps.decoder] == [(B, H, T, T)] * NUM_DECODER_LAYERS
    assert [tuple(m.shape) for m in maps.cross] == [(B, H, T, S)] * NUM_DECODER_LAYERS
    for weights in [*maps.encoder, *maps.decoder, *maps.cross]:
        ones = torch.ones(weights.shape[:-1], dtype=torch.float64)
        torch.testing.assert_close(weights.sum(-1), ones, atol=1e-12, rtol=0)
    for weights in [*maps.encoder, *maps.cross]:
        assert not weights[1, :, :, 3:].any()
        assert (weights[1, :, :, :3] > 0).all()
    for weights in maps.decoder:
        assert torch.equal(weights, weights.tril())


def test_attention_maps_see_no_dropout_and_leave_the_mode_as_it_was(model, src, tgt_in):
    expected = model.attention_maps(src, VALID, tgt_in)
    own = copy.deepcopy(model).train()
    for module in own.modules():
        if hasattr(module, "p"):
            module.p = 0.5
    maps = own.attention_maps(src, VALID, tgt_in)
    assert own.training
    assert own.encoder.layers[0].training
    for one, other in zip(expected.cross, maps.cross, strict=True):
        assert torch.equal(one, other)


def test_attention_maps_keep_no_graph(model, src, tgt_in):
    assert not model.attention_maps(src, VALID, tgt_in).cross[0].requires_grad


def test_a_step_gives_the_logits_of_its_last_piece(model, src, tgt_in):
    logits, state = model.step(tgt_in, model.start(src, VALID))
    torch.testing.assert_close(logits, model(src, VALID, tgt_in)[:, -1], atol=1e-10, rtol=0)
    assert state.length == T


def test_the_decoding_starts_with_nothing_of_the_target(model, src):
    state = model.start(src, VALID)
    assert state.length == 0
    assert state.history.cache.buffer is None
    assert len(state.source) == NUM_DECODER_LAYERS
    assert torch.equal(state.cross_mask, padding_mask(VALID))


def test_dropout_makes_training_passes_differ_and_evaluation_passes_equal(src, tgt_in):
    torch.manual_seed(4)
    sizes = ModelConfig(d_model=D, num_heads=H, d_ff=F, num_encoder_layers=1, num_decoder_layers=1, dropout=0.3)
    model = build_model(sizes, V, V)
    assert not torch.equal(model.train()(src, VALID, tgt_in), model(src, VALID, tgt_in))
    assert torch.equal(model.eval()(src, VALID, tgt_in), model(src, VALID, tgt_in))


def test_every_weight_gets_a_gradient(src, tgt_in):
    torch.manual_seed(5)
    sizes = ModelConfig(d_model=D, num_heads=H, d_ff=F, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0)
    model = build_model(sizes, V, V).double()
    model(src, VALID, tgt_in).pow(3).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
