"""The memory of training is near to what autograd keeps and the optimiser holds."""

import dataclasses

import pytest
import torch

from seq2seq.config import (
    Activation,
    Architecture,
    ModelConfig,
    NormKind,
    NormPlacement,
    PositionKind,
    Tying,
)
from seq2seq.inspection.cost import Sizes
from seq2seq.inspection.memory import training_memory
from seq2seq.models import Transformer, build_model

B, S, T, V = 3, 17, 19, 101

PAPER = ModelConfig(48, 4, 160, 2, 1, dropout=0.1)
GPT = dataclasses.replace(
    PAPER,
    architecture=Architecture.decoder_only,
    num_encoder_layers=0,
    tying=Tying.two_way,
    norm_placement=NormPlacement.pre,
    positions=PositionKind.learned,
    max_positions=40,
    activation=Activation.gelu_tanh,
)
MODERN = dataclasses.replace(
    PAPER,
    norm_placement=NormPlacement.pre,
    norm=NormKind.rms_norm,
    positions=PositionKind.rope,
    gated=True,
    activation=Activation.silu,
    num_kv_heads=2,
)
CONFIGS = {
    "paper": PAPER,
    "without dropout": dataclasses.replace(PAPER, dropout=0.0),
    "gpt": GPT,
    "modern": MODERN,
    "normed heads": dataclasses.replace(MODERN, qk_norm=True),
    "normed heads, sinusoids": dataclasses.replace(MODERN, qk_norm=True, positions=PositionKind.sinusoidal),
    "sigmoid": dataclasses.replace(PAPER, activation=Activation.gelu_sigmoid),
    "dropout inside": dataclasses.replace(PAPER, activation_dropout=0.1),
    "dropout in a gate": dataclasses.replace(MODERN, activation_dropout=0.1),
    "dropout on attention": dataclasses.replace(PAPER, attention_dropout=0.1),
}


def kept_bytes(model: Transformer) -> int:
    """Bytes that autograd keeps of a forward pass and its loss, parameters left out, each storage once."""
    own = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    src, tgt = torch.ones(B, S, dtype=torch.long), torch.ones(B, T, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        hidden = model.train().decode(src, torch.ones_like(src, dtype=torch.bool), tgt).flatten(0, 1).clone()
        model.logits(hidden).log_softmax(-1).sum()
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@pytest.mark.parametrize("name", CONFIGS)
def test_activations_are_within_one_percent_of_what_autograd_keeps(name):
    config = CONFIGS[name]
    found = {part.name: part.bytes for part in training_memory(Sizes(config, V, V, B, S, T))}
    activations = sum(found.get(f"{stack} activations", 0) for stack in ("encoder", "decoder"))
    estimate = activations + found["embeddings, log-probs"]
    assert estimate == pytest.approx(kept_bytes(build_model(config, V, V)), rel=0.01)


@pytest.mark.parametrize("config", [PAPER, GPT])
def test_weights_gradients_and_moments_are_what_they_take(config):
    model = build_model(config, V, V)
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.step()
    moments = sum(state[name].numel() * 4 for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq"))
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    gradients = sum(weight.grad.numel() * weight.grad.element_size() for weight in model.parameters())
    found = {part.name: part.bytes for part in training_memory(Sizes(config, V, V, B, S, T))}
    assert (found["weights"], found["gradients"], found["Adam's moments"]) == (weights, gradients, moments)


def test_logits_are_those_of_the_predicted_positions():
    found = {part.name: part for part in training_memory(Sizes(GPT, V, V, B, S, T))}
    assert found["logits or their gradient"].bytes == 4 * B * T * V
    assert found["logits or their gradient"].formula == "B U V"
    assert "encoder activations" not in found
