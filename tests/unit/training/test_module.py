"""One optimiser step: normalisation, padding, schedule."""

import math

import pytest
import torch

from seq2seq.config import ModelConfig, OptimConfig
from seq2seq.corpus.batching import make_batch
from seq2seq.models import build_model
from seq2seq.text.special import SpecialIds
from seq2seq.training.module import TranslationModule

V, D = 13, 8
SOURCES = [[5, 6, 7, 2], [8, 2], [9, 10, 11, 12, 5, 2], [7, 2], [5, 5, 2], [6, 7, 8, 9, 2], [10, 2], [12, 11, 2]]
TARGETS = [[6, 2], [9, 10, 11, 2], [5, 6, 7, 8, 9, 10, 2], [11, 2], [12, 5, 2], [7, 2], [8, 9, 10, 2], [6, 6, 2]]


def module(dropout=0.0, **optim) -> TranslationModule:
    torch.manual_seed(0)
    config = ModelConfig(d_model=D, num_heads=2, d_ff=12, num_encoder_layers=1, num_decoder_layers=2, dropout=dropout)
    return TranslationModule(build_model(config, V, V).double(), OptimConfig(**optim), D)


def batch(indices):
    return make_batch([SOURCES[i] for i in indices], [TARGETS[i] for i in indices], SpecialIds(), SpecialIds())


def gradient(net, parts):
    net.zero_grad()
    num_tokens = sum(part.num_target_tokens for part in parts)
    for part in parts:
        (net.training_loss(part).loss / num_tokens).backward()
    return [parameter.grad.clone() for parameter in net.parameters()]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_t2_accumulated_parts_give_the_gradient_of_the_joined_batch(size):
    net = module()
    joined = gradient(net, [batch(range(8))])
    parts = gradient(net, [batch(range(i, i + size)) for i in range(0, 8, size)])
    for one, other in zip(joined, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_t1_padding_changes_neither_loss_nor_gradient():
    net = module()
    few = batch([0, 1, 3])
    wide = [
        torch.nn.functional.pad(tensor, (0, 40))
        for tensor in (few.src, few.src_valid, few.tgt_in, few.tgt_out, few.tgt_valid)
    ]
    padded = type(few)(*wide, few.num_target_tokens, ())
    narrow_loss, wide_loss = net.training_loss(few), net.training_loss(padded)
    torch.testing.assert_close(narrow_loss.loss, wide_loss.loss, rtol=1e-12, atol=1e-12)
    for one, other in zip(gradient(net, [few]), gradient(net, [padded]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_t1_the_loss_is_the_hand_computed_sum_over_real_positions():
    net = module()
    part = batch([0, 2])
    log_probs = net.model(part.src, part.src_valid, part.tgt_in).log_softmax(-1)
    loss = nll = 0.0
    for row, target in enumerate((TARGETS[0], TARGETS[2])):
        for position, piece in enumerate(target):
            nll -= log_probs[row, position, piece].item()
            loss -= 0.9 * log_probs[row, position, piece].item() + 0.1 / V * log_probs[row, position].sum().item()
    losses = net.training_loss(part)
    assert losses.loss.item() == pytest.approx(loss, abs=1e-9)
    assert losses.nll.item() == pytest.approx(nll, abs=1e-9)


def test_t5_perplexity_does_not_depend_on_the_smoothing():
    plain, smoothed = (module(label_smoothing=value).validation_loss(batch([0, 1])) for value in (0.0, 0.1))
    assert plain.nll.item() == plain.loss.item() == smoothed.nll.item()
    assert smoothed.loss.item() != smoothed.nll.item()


def test_t5_validation_perplexity_is_the_exponential_of_the_plain_likelihood(monkeypatch):
    net = module(label_smoothing=0.1)
    logged = {}
    monkeypatch.setattr(net, "_log", logged.update)
    net.on_validation_epoch_start()
    net.validation_step(batch([0, 1, 2]), 0)
    net.validation_step(batch([5]), 1)
    net.on_validation_epoch_end()
    total = sum(net.validation_loss(part).nll.item() for part in (batch([0, 1, 2]), batch([5])))
    tokens = sum(len(TARGETS[i]) for i in (0, 1, 2, 5))
    assert logged["valid/nll"] == pytest.approx(total / tokens)
    assert logged["valid/perplexity"] == pytest.approx(math.exp(total / tokens))
    assert logged["valid/loss"] > 0
    assert logged["valid/loss"] != logged["valid/nll"]
    assert 0 <= logged["valid/teacher_forced_accuracy"] <= 1


def test_tied_matrices_are_one_parameter_for_the_optimiser():
    net = module()
    optimizer = net.configure_optimizers()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert len(parameters) == len({id(parameter) for parameter in parameters})
    assert sum(parameter is net.model.output for parameter in parameters) == 1
    assert sum(parameter.numel() for parameter in parameters) == net.model.num_parameters()
    assert (optimizer.defaults["betas"], optimizer.defaults["eps"]) == ((0.9, 0.98), 1e-9)
