"""seq2seq.models.lean: the decode step of one function a layer against the modules."""

import copy
import dataclasses

import pytest
import torch

from seq2seq.config import Activation, AttentionBias, ModelConfig, NormKind, NormPlacement, PositionKind
from seq2seq.models import build_model
from seq2seq.models.lean import LeanDecoder

V, B, S, W, STEPS = 13, 3, 5, 4, 6
SIZES = ModelConfig(d_model=8, num_heads=2, d_ff=12, num_encoder_layers=1, num_decoder_layers=2)
FAMILIES = {
    "the paper's": {},
    "pre": {"norm_placement": NormPlacement.pre, "norm": NormKind.rms_norm},
    "deepnorm, halves": {"norm_placement": NormPlacement.deepnorm, "positions": PositionKind.sinusoidal_halves},
    "grouped, gated": {"num_heads": 4, "num_kv_heads": 2, "gated": True, "activation": Activation.silu},
    "learned, no biases": {
        "positions": PositionKind.learned,
        "max_positions": 9,
        "attention_bias": AttentionBias.none,
        "d_head": 6,
    },
}


@pytest.fixture(params=FAMILIES)
def model(request):
    torch.manual_seed(4)
    model = build_model(dataclasses.replace(SIZES, **FAMILIES[request.param]), V, V).double().eval()
    return model.requires_grad_(False)


def decoded(model):
    """Logits of some steps of beams that widen, are ranked anew, and lose a sentence."""
    generator = torch.Generator().manual_seed(6)
    src = torch.randint(4, V, (B, S), generator=generator)
    valid = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] + [False] * 4])
    state, logits, rows = model.start(src, valid), [], B
    for step in range(STEPS):
        found, state = model.step(torch.randint(3, V, (rows, 1), generator=generator), state)
        logits.append(found)
        if step == 0:
            state = state.select(torch.arange(B).repeat_interleave(W), torch.arange(B))
            rows = B * W
        elif step == 2:
            state = state.select(torch.tensor([8, 0, 1, 8, 2]), torch.tensor([0, 2]), torch.tensor([1, 0, 0, 1, 0]))
            rows = 5
    return torch.cat(logits)


def test_the_lean_steps_are_the_modules_steps(model):
    expected = decoded(model)
    assert LeanDecoder.suits(model.decoder)
    model.lean = LeanDecoder(model.decoder)
    torch.testing.assert_close(decoded(model), expected, rtol=0, atol=1e-12)


def test_a_copy_of_a_model_has_lean_steps_of_its_own(model):
    model.lean = LeanDecoder(model.decoder)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert decoded(twin).abs().max() > 0.01
    assert decoded(model).abs().max() == 0


def test_positions_beyond_a_learned_table_are_refused():
    sizes = dataclasses.replace(SIZES, **FAMILIES["learned, no biases"])
    model = build_model(sizes, V, V).eval().requires_grad_(False)
    model.lean = LeanDecoder(model.decoder)
    state = model.start(torch.tensor([[5, 2]]), torch.ones(1, 2, dtype=torch.bool))
    for _ in range(9):
        _, state = model.step(torch.tensor([[5]]), state)
    with pytest.raises(ValueError, match="a sequence of 10 pieces was asked for"):
        model.step(torch.tensor([[5]]), state)


def test_rotary_positions_and_normed_queries_are_left_to_the_modules():
    for changes in ({"positions": PositionKind.rope}, {"qk_norm": True}):
        assert not LeanDecoder.suits(build_model(dataclasses.replace(SIZES, **changes), V, V).decoder)
