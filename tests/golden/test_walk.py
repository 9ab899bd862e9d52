"""The shapes of the worked models, operation by operation, as they flow."""

import pytest
import torch

from seq2seq.config import Activation, Architecture, ModelConfig, NormPlacement, PositionKind, Tying
from seq2seq.inspection.shapes import walk
from seq2seq.inspection.walk import Mode
from seq2seq.models import build_model


def gpt(d_model: int, num_heads: int, d_ff: int, vocab: int, positions: int):
    config = ModelConfig(
        d_model,
        num_heads,
        d_ff,
        0,
        1,
        architecture=Architecture.decoder_only,
        tying=Tying.two_way,
        norm_placement=NormPlacement.pre,
        positions=PositionKind.learned,
        max_positions=positions,
        activation=Activation.gelu_tanh,
    )
    return build_model(config, vocab, vocab)


def flowed(model, mode: Mode, batch: int, target: int, source: int = 0) -> dict[tuple[str, str, str], tuple[int, ...]]:
    """Shapes of the operations by stack, part and name; each name only once in a model of one layer."""
    operations = walk(model, mode, batch=batch, source=source, target=target).operations
    return {(op.stack, op.part, op.name): op.shape for op in operations}


# sizes of the two worked models: B, T, D, H, K, F, V
SMALL = (2, 4, 8, 2, 4, 32, 10000)
WIDE = (2, 128, 768, 12, 64, 3072, 50)


@pytest.mark.parametrize(("b", "t", "d", "h", "k", "f", "v"), [SMALL, WIDE])
def test_a_decoder_only_pass_has_the_shapes_of_the_walk(b, t, d, h, k, f, v):
    shapes = flowed(gpt(d, h, f, v, t), Mode.training, b, t)

    assert shapes[("decoder", "embedding", "ids")] == (b, t)
    assert shapes[("decoder", "embedding", "look-up")] == (b, t, d)
    own = {
        name: shape for (stack, part, name), shape in shapes.items() if (stack, part) == ("decoder", "self-attention")
    }
    assert own["q"] == own["k"] == own["v"] == (b, t, h * k)
    assert own["q in heads"] == own["k in heads"] == own["v in heads"] == (b, h, t, k)
    assert own["scores"] == own["weights"] == (b, h, t, t)
    assert own["mask"] == (1, 1, t, t)
    assert own["context"] == (b, h, t, k)
    assert own["heads merged"] == (b, t, h * k)
    assert own["output projection"] == own["residual"] == (b, t, d)
    assert shapes[("decoder", "feed-forward", "inner")] == (b, t, f)
    assert shapes[("decoder", "feed-forward", "output")] == (b, t, d)
    assert shapes[("output", "logits", "logits")] == (b, t, v)


def test_the_small_worked_model_in_numbers():
    model = gpt(8, 2, 32, 10000, 4)
    shapes = flowed(model, Mode.training, 2, 4)
    names = ("q", "k", "v", "q in heads", "scores", "weights", "context", "heads merged", "output projection")
    expected = [(2, 4, 8)] * 3 + [(2, 2, 4, 4)] * 4 + [(2, 4, 8)] * 2
    assert [shapes[("decoder", "self-attention", name)] for name in names] == expected
    assert [shapes[("decoder", "feed-forward", name)] for name in ("inner", "output")] == [(2, 4, 32), (2, 4, 8)]
    assert shapes[("output", "logits", "logits")] == (2, 4, 10000)
    prefill = flowed(model, Mode.prefill, 2, 4)
    assert prefill[("output", "logits", "last position")] == (2, 8)
    assert prefill[("output", "logits", "logits")] == (2, 10000)


@pytest.mark.parametrize(("b", "t", "d", "h", "k", "f", "v"), [SMALL, WIDE])
def test_prefill_fills_the_cache_and_a_step_has_one_query(b, t, d, h, k, f, v):
    model = gpt(d, h, f, v, t)
    prefill, step = flowed(model, Mode.prefill, b, t), flowed(model, Mode.step, b, t)

    for shapes in (prefill, step):
        assert shapes[("decoder", "self-attention", "k in the cache")] == (b, h, t, k)
        assert shapes[("decoder", "self-attention", "v in the cache")] == (b, h, t, k)
        assert shapes[("output", "logits", "logits")] == (b, v)
    assert prefill[("decoder", "self-attention", "scores")] == (b, h, t, t)
    assert step[("decoder", "self-attention", "q in heads")] == (b, h, 1, k)
    assert step[("decoder", "self-attention", "scores")] == (b, h, 1, t)
    assert step[("decoder", "self-attention", "context")] == (b, h, 1, k)
    assert step[("decoder", "feed-forward", "inner")] == (b, 1, f)


def test_cross_attention_has_queries_of_the_target_and_keys_of_the_source():
    b, s, t, d, h, g, k, f, v = 2, 5, 3, 16, 4, 2, 6, 12, 11
    config = ModelConfig(d, h, f, 1, 1, num_kv_heads=g, d_head=k)
    model = build_model(config, v, v)
    training, step = flowed(model, Mode.training, b, t, s), flowed(model, Mode.step, b, t, s)

    cross = {name: shape for (_, part, name), shape in training.items() if part == "cross-attention"}
    assert cross["q in heads"] == (b, h, t, k)
    assert cross["k in heads"] == cross["v in heads"] == (b, g, s, k)
    assert cross["scores"] == cross["weights"] == (b, h, t, s)
    assert cross["mask"] == (b, 1, 1, s)
    assert cross["context"] == (b, h, t, k)
    assert training[("encoder", "self-attention", "scores")] == (b, h, s, s)
    assert training[("encoder", "self-attention", "mask")] == (b, 1, 1, s)
    assert training[("decoder", "self-attention", "scores")] == (b, h, t, t)
    assert training[("decoder", "self-attention", "k")] == (b, t, g * k)
    assert step[("decoder", "cross-attention", "scores")] == (b, h, 1, s)
    assert ("decoder", "cross-attention", "k, v projection") not in step
    assert ("encoder", "embedding", "look-up") not in step


def test_the_sizes_are_those_of_the_tensors_and_not_of_the_options():
    model = gpt(8, 2, 32, 50, 4)
    with torch.no_grad():
        narrow = model.decoder.layers[0].feed_forward
        narrow.inner, narrow.output = torch.nn.Linear(8, 5), torch.nn.Linear(5, 8)
    shapes = flowed(model, Mode.training, 2, 4)
    assert shapes[("decoder", "feed-forward", "inner")] == (2, 4, 5)
