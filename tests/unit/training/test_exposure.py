"""Free running against a loop that reads everything anew at each step."""

import logging
import math

import pytest
import torch

from seq2seq.config import DataKind, OptimConfig
from seq2seq.corpus.batching import make_batch
from seq2seq.corpus.documents import TextSize
from seq2seq.corpus.text_blocks import EncodedText, epoch_blocks
from seq2seq.text.special import SpecialIds
from seq2seq.training import exposure
from seq2seq.training.checkpoints import VALIDATION_METRICS
from seq2seq.training.objectives import LanguageModelModule, TranslationModule

SOURCES = [[5, 6, 7, 2], [8, 2], [9, 10, 11, 12, 5, 2], [7, 2], [5, 5, 2], [6, 7, 8, 9, 2]]
LENGTHS = [3, 7, 1, 4, 4, 9]
DOCUMENTS = [[5, 6, 7], [8], [9, 10, 11, 12, 5, 9, 18, 6, 7, 13, 14, 15], [7, 17], [5, 5]]


def free(model, source, length):
    """The best pieces, one after the other, each from all before it read anew."""
    src, ids = torch.tensor([source]), [1]
    for _ in range(length):
        ids.append(model(src, torch.ones_like(src, dtype=torch.bool), torch.tensor([ids]))[0, -1].argmax().item())
    return ids[1:]


def targets_near(model, seed=1):
    """Targets that the model follows in part: what it says freely, some pieces changed."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for source, length in zip(SOURCES, LENGTHS, strict=True):
        said = torch.tensor(free(model, source, length))
        other = torch.randint(3, 19, said.shape, generator=generator)
        rows.append(other.where(torch.rand(said.shape, generator=generator) < 0.4, said).tolist())
    return rows


@pytest.mark.parametrize("name", ["original", "modern", "gpt2", "llama", "prefix_lm"])
def test_pieces_right_in_free_running_are_those_of_a_loop_that_reads_all_anew(families, scrambled, name):
    model = scrambled(families(name))
    targets = targets_near(model)
    expected = [
        piece == said
        for source, target in zip(SOURCES, targets, strict=True)
        for piece, said in zip(target, free(model, source, len(target)), strict=True)
    ]
    batch = make_batch(SOURCES, targets, SpecialIds(), SpecialIds())
    found = exposure.free_running_target(model, batch)
    assert found.item() == sum(expected)
    assert 5 < sum(expected) < len(expected)


def test_a_short_source_beside_a_long_one_takes_no_position_that_is_not_there(families, scrambled):
    model = scrambled(families("gpt2", max_positions=12))
    batch = make_batch([[5] * 10 + [2], [6, 2]], [[7, 2], [7] * 10 + [2]], SpecialIds(), SpecialIds())
    assert 0 <= exposure.free_running_target(model, batch).item() <= 13


def text_by_loops(model, text, lengths):
    """Right pieces when they are given and in free running, and how many, of the first part of each block."""
    forced = right = compared = 0
    for row, length in enumerate(lengths):
        ids, targets = text.ids[row, :length].tolist(), text.targets[row, :length].tolist()
        given = max(1, length // 2)
        known = ids[:given]
        for place in range(given - 1, min(length, given - 1 + exposure.FREE)):
            best = model.logits(model.read(torch.tensor([known])))[0, -1].argmax().item()
            by_force = model.logits(model.read(torch.tensor([ids[: place + 1]])))[0, -1].argmax().item()
            if text.counted[row, place]:
                compared += 1
                right += best == targets[place]
                forced += by_force == targets[place]
                known = [*known, best]
            else:
                known = [*known, targets[place]]
    return forced, right, compared


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("horizon", [3, 32])
@pytest.mark.parametrize("apart", [True, False])
def test_a_text_is_gone_on_with_from_the_first_half_of_a_blocks_first_part(
    families, scrambled, monkeypatch, name, horizon, apart
):
    monkeypatch.setattr(exposure, "FREE", horizon)
    model = scrambled(families(name))
    with torch.no_grad():  # pieces of the documents are likely, so that some are right
        model.output[[5, 6, 7, 9]] *= 2
    packed = epoch_blocks(EncodedText(DOCUMENTS, SpecialIds()), 14, apart=apart, shuffle=False)
    text = packed[list(range(len(packed)))]
    expected = text_by_loops(model, text, [block[0].length for block in packed.blocks])
    hidden = model.read(text.ids, text.documents)
    found = tuple(value.item() for value in exposure.free_running_text(model, text, hidden))
    assert found == expected
    assert found[2] >= 5


def test_a_block_of_one_piece_is_predicted_from_its_bos(families, scrambled):
    model = scrambled(families("llama"))
    text = epoch_blocks(EncodedText([[], []], SpecialIds()), 6, apart=True, shuffle=False)
    batch = text[list(range(len(text)))]
    forced, right, compared = exposure.free_running_text(model, batch, model.read(batch.ids, batch.documents))
    assert compared.item() == len(text)
    assert forced.item() == right.item()


def test_a_models_own_greedy_output_has_no_gap(families, scrambled):
    model = scrambled(families("original"))
    targets = [free(model, source, length) for source, length in zip(SOURCES, LENGTHS, strict=True)]
    net = TranslationModule(model, OptimConfig(), 24).eval()
    batch = make_batch(SOURCES, targets, SpecialIds(), SpecialIds())
    losses = net.validation_loss(batch)
    found = {name: value.item() for name, value in losses.further.items()}
    assert found == {"forced_correct": 28, "free_correct": 28, "compared": 28}


@pytest.mark.parametrize("on_source", [False, True])
def test_both_accuracies_and_their_gap_are_logged_over_all_batches_and_no_random_number_is_drawn(
    families, scrambled, monkeypatch, caplog, on_source
):
    model = scrambled(families("gpt2"))
    net = TranslationModule(model, OptimConfig(loss_on_source=on_source), 24).eval()
    targets = targets_near(model)
    logged = {}
    monkeypatch.setattr(net, "_log", logged.update)
    before = torch.get_rng_state()
    net.on_validation_epoch_start()
    for rows in ([0, 1, 2, 3], [4, 5]):
        batch = make_batch([SOURCES[i] for i in rows], [targets[i] for i in rows], SpecialIds(), SpecialIds())
        net.validation_step(batch, 0)
    with caplog.at_level(logging.INFO):
        net.on_validation_epoch_end()
    assert torch.equal(before, torch.get_rng_state())
    said = [free(model, source, length) for source, length in zip(SOURCES, LENGTHS, strict=True)]
    right = sum(a == b for one, two in zip(targets, said, strict=True) for a, b in zip(one, two, strict=True))
    assert logged["valid/free_running_accuracy"] == pytest.approx(right / 28)
    forced = logged["valid/teacher_forced_accuracy"]
    assert logged["valid/exposure_gap"] == pytest.approx(forced - right / 28)
    assert caplog.messages == [
        f"step 0: valid accuracy {100 * forced:.1f}% with the right pieces given, {right / 0.28:.1f}% in free running"
    ]
    assert set(logged) - {"step"} <= set(VALIDATION_METRICS[DataKind.parallel])
    assert not model.training


def test_a_language_models_gap_is_between_accuracies_at_the_same_places(families, scrambled, monkeypatch):
    model = scrambled(families("llama"))
    net = LanguageModelModule(model, OptimConfig(), 24, 20, TextSize(characters=30, bytes=40)).eval()
    packed = epoch_blocks(EncodedText(DOCUMENTS, SpecialIds()), 14, apart=True, shuffle=False)
    logged = {}
    monkeypatch.setattr(net, "_log", logged.update)
    net.on_validation_epoch_start()
    net.validation_step(packed[list(range(len(packed)))], 0)
    net.on_validation_epoch_end()
    lengths = [block[0].length for block in packed.blocks]
    forced, right, compared = text_by_loops(model, packed[list(range(len(packed)))], lengths)
    assert logged["valid/free_running_accuracy"] == pytest.approx(right / compared)
    assert logged["valid/exposure_gap"] == pytest.approx((forced - right) / compared)
    assert set(logged) - {"step"} <= set(VALIDATION_METRICS[DataKind.text])
    assert math.isfinite(logged["valid/bits_per_byte"])
