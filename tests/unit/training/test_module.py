"""One optimiser step: normalisation, padding, schedule; and losses against loops over single rows."""

import logging
import math

import pytest
import torch

from seq2seq.config import ModelConfig, OptimConfig
from seq2seq.corpus.batching import make_batch
from seq2seq.corpus.documents import TextSize
from seq2seq.corpus.text_blocks import EncodedText, epoch_blocks
from seq2seq.models import build_model
from seq2seq.nn.masks import prefix_mask
from seq2seq.nn.positions import Places
from seq2seq.text.special import SpecialIds
from seq2seq.training.objectives import LanguageModelModule, TranslationModule, source_targets

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
    padded = type(few)(*wide, few.num_target_tokens, few.num_source_tokens, ())
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


def row_losses(model, row, first, mask=None):
    """Smoothed loss and likelihood of row[first:], each predicted from the pieces before it, read alone."""
    ids = torch.tensor([row[:-1]])
    hidden = model.hidden(ids, Places.span(0, ids.shape[1]), mask)
    log_probs = model.logits(hidden)[0].log_softmax(-1)
    loss = nll = 0.0
    for place in range(first - 1, len(row) - 1):
        nll -= log_probs[place, row[place + 1]].item()
        loss -= 0.9 * log_probs[place, row[place + 1]].item() + 0.1 / 19 * log_probs[place].sum().item()
    return loss, nll


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3", "prefix_lm"])
def test_the_target_loss_of_a_decoder_only_batch_is_that_of_single_rows_without_padding(families, scrambled, name):
    net = TranslationModule(scrambled(families(name)), OptimConfig(), 24).eval()
    loss = nll = 0.0
    for source, target in zip(SOURCES, TARGETS, strict=True):
        row = [*source[:-1], 1, *target]
        whole = torch.ones(1, len(row) - 1, dtype=torch.bool)
        mask = prefix_mask(whole, len(source) - 1, True) if name == "prefix_lm" else None
        one = row_losses(net.model, row, len(source), mask)
        loss, nll = loss + one[0], nll + one[1]
    losses = net.training_loss(batch(range(8)))
    assert losses.loss.item() == pytest.approx(loss, abs=1e-10)
    assert losses.nll.item() == pytest.approx(nll, abs=1e-10)
    assert losses.source_nll is None
    assert net.num_pieces(batch(range(8))) == sum(map(len, TARGETS))


def test_pairs_that_fit_their_learned_positions_are_learned_beside_longer_sources_and_targets(families, scrambled):
    net = TranslationModule(scrambled(families("gpt2", max_positions=12)), OptimConfig(loss_on_source=True), 24)
    longest = max(len(source) - 1 + len(target) for source, target in zip(SOURCES, TARGETS, strict=True))
    assert longest == 12  # and the longest source beside the longest target, in one row, would be more
    pairs = [[*SOURCES, [5] * 11 + [2]], [*TARGETS, [2]]]
    uneven = make_batch(*pairs, SpecialIds(), SpecialIds())
    assert net.training_loss(uneven).loss.isfinite()
    assert net.validation_loss(uneven).loss.isfinite()


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_loss_on_the_source_too_is_that_of_single_rows_from_their_second_piece_on(families, scrambled, name):
    net = TranslationModule(scrambled(families(name)), OptimConfig(loss_on_source=True), 24).eval()
    rows = [[*source[:-1], 1, *target] for source, target in zip(SOURCES, TARGETS, strict=True)]
    both = [row_losses(net.model, row, 1) for row in rows]
    target = [row_losses(net.model, row, len(source)) for row, source in zip(rows, SOURCES, strict=True)]
    losses, loss, nll = net.training_loss(batch(range(8))), sum(one[0] for one in both), sum(one[1] for one in target)
    assert losses.loss.item() == pytest.approx(loss, abs=1e-10)
    assert losses.nll.item() == pytest.approx(nll, abs=1e-10)
    assert losses.source_nll.item() == pytest.approx(sum(one[1] for one in both) - nll, abs=1e-10)
    assert net.num_pieces(batch(range(8))) == sum(len(row) - 1 for row in rows)
    validation = net.validation_loss(batch(range(8)))
    assert validation.loss.item() == pytest.approx(sum(one[0] for one in target), abs=1e-10)


def test_what_follows_a_source_piece_is_the_next_one_or_the_separator():
    few = batch([0, 1, 4])
    ids, valid = source_targets(few.src, few.src_valid, few.tgt_in)
    assert ids[valid].tolist() == [6, 7, 1, 1, 5, 1]
    assert valid.sum() == few.num_source_predictions
    left = [torch.tensor(rows) for rows in ([[0, 5, 2], [6, 7, 2]], [[False, True, True], [True] * 3], [[1], [1]])]
    ids, valid = source_targets(*left)
    assert (ids[valid].tolist(), valid.tolist()) == ([1, 7, 1], [[False, True], [True, True]])
    empty = make_batch([[2], [2]], [[5, 2], [2]], SpecialIds(), SpecialIds())
    assert source_targets(empty.src, empty.src_valid, empty.tgt_in)[0].shape == (2, 0)
    assert empty.num_source_predictions == 0


def test_names_stay_honest_when_the_source_is_learned_too(families, scrambled, monkeypatch):
    logged = {}
    means = {}
    for on_source in (False, True):
        net = TranslationModule(scrambled(families("gpt2")), OptimConfig(loss_on_source=on_source), 24).eval()
        monkeypatch.setattr(net, "_log", logged.update)
        logged.clear()
        net.validation_step(batch([0, 2, 5]), 0)
        net.on_validation_epoch_end()
        losses = net.training_loss(batch([0, 2, 5]))
        net._count(net.train_sums, batch([0, 2, 5]), losses, net.num_pieces(batch([0, 2, 5])))
        net.train_sums.seconds = 1.0
        net._log_training(0.1, 1.0)
        means[on_source] = dict(logged)
    tokens, pieces = 11, 11 + 3 + 5 + 4
    alone, both = means[False], means[True]
    for name in ("valid/loss", "valid/nll", "valid/teacher_forced_accuracy", "train/nll", "train/perplexity"):
        assert both[name] == pytest.approx(alone[name])
    assert both["train/loss"] == pytest.approx(losses.loss.item() / pieces)
    assert both["train/source_nll"] == pytest.approx(losses.source_nll.item() / (pieces - tokens))
    assert "train/source_nll" not in alone
    assert both["train/target_tokens_per_second"] == tokens


DOCUMENTS = [[5, 6, 7], [8], [9, 10, 11, 12, 5, 9, 18], [7, 17], [5, 5]]


def language_model(model, **optim):
    return LanguageModelModule(model, OptimConfig(**optim), 24, 20, TextSize(characters=30, bytes=40)).eval()


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3"])
def test_a_documents_losses_in_a_block_are_those_of_the_document_alone(families, scrambled, name):
    net = language_model(scrambled(families(name)), label_smoothing=0.1)
    packed = epoch_blocks(EncodedText(DOCUMENTS, SpecialIds()), 12, apart=True, seed=3)
    assert any(len(block) > 1 for block in packed.blocks)
    alone = [row_losses(net.model, [1, *ids, 2], 1) for ids in DOCUMENTS]
    losses = [net.training_loss(packed[indices]) for indices in packed.batches(2)]
    assert sum(one.loss.item() for one in losses) == pytest.approx(sum(one[0] for one in alone), abs=1e-10)
    assert sum(one.nll.item() for one in losses) == pytest.approx(sum(one[1] for one in alone), abs=1e-10)
    assert sum(net.num_pieces(packed[indices]) for indices in packed.batches(2)) == sum(map(len, DOCUMENTS)) + 5


def test_not_apart_a_block_is_one_text_whose_bos_is_read_and_never_predicted(families, scrambled):
    net = language_model(scrambled(families("gpt2")))
    packed = epoch_blocks(EncodedText(DOCUMENTS, SpecialIds()), 50, apart=False)
    row = [piece for ids in DOCUMENTS for piece in (1, *ids, 2)]
    log_probs = net.model.logits(net.model.read(torch.tensor([row[:-1]])))[0].log_softmax(-1)
    expected = -sum(log_probs[i, piece].item() for i, piece in enumerate(row[1:]) if piece != 1)
    losses = [net.training_loss(packed[indices]) for indices in packed.batches(1)]
    assert len(losses) == 1
    assert losses[0].nll.item() == losses[0].loss.item() == pytest.approx(expected, abs=1e-10)


def test_a_language_model_is_judged_by_piece_by_character_and_by_byte(families, scrambled, monkeypatch, caplog):
    net = language_model(scrambled(families("gpt2")))
    logged = {}
    monkeypatch.setattr(net, "_log", logged.update)
    packed = epoch_blocks(EncodedText(DOCUMENTS, SpecialIds()), 12, apart=True, shuffle=False)
    net.on_validation_epoch_start()
    for number, indices in enumerate(packed.batches(1)):
        net.validation_step(packed[indices], number)
    with caplog.at_level(logging.INFO):
        net.on_validation_epoch_end()
    total = sum(row_losses(net.model, [1, *ids, 2], 1)[1] for ids in DOCUMENTS)
    assert logged["valid/nll"] == pytest.approx(total / 20)
    assert logged["valid/perplexity"] == pytest.approx(math.exp(total / 20))
    assert logged["valid/nll_per_character"] == pytest.approx(total / 30)
    assert logged["valid/bits_per_byte"] == pytest.approx(total / math.log(2) / 40)
    assert caplog.messages[1:] == [
        f"step 0: valid perplexity {math.exp(total / 20):.2f} a piece, {total / 30:.3f} nats a character, "
        f"{total / math.log(2) / 40:.3f} bits a byte"
    ]


def test_the_usual_smoothing_is_the_papers_for_translation_and_none_for_language_models(families, scrambled):
    model = scrambled(families("gpt2"))
    assert TranslationModule(model, OptimConfig(), 24).smoothing == 0.1
    assert language_model(model).smoothing == 0.0
    assert language_model(model, label_smoothing=0.2).smoothing == 0.2
