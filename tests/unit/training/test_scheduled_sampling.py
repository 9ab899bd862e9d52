"""Scheduled sampling: its schedules, and its passes against loops over single positions."""

import dataclasses
import math
from types import SimpleNamespace

import pytest
import torch

from seq2seq.config import (
    GradientThrough,
    MixingChoice,
    MixingSchedule,
    OptimConfig,
    Replacement,
    ScheduledSamplingConfig,
)
from seq2seq.corpus.batching import make_batch
from seq2seq.corpus.documents import TextSize
from seq2seq.corpus.text_blocks import EncodedText, epoch_blocks
from seq2seq.text.special import SpecialIds
from seq2seq.training.objectives import LanguageModelModule, TranslationModule
from seq2seq.training.scheduled_sampling import LEFT, Mixer, _random_pieces, mixing_rate

V, PAD, BOS, EOS = 19, 0, 1, 2
SOURCES = [[5, 6, 7, 2], [8, 2], [9, 10, 11, 12, 5, 2]]
TARGETS = [[6, 13, 2], [9, 10, 11, 14, 15, 2], [5, 6, 7, 8, 2]]
BATCH = make_batch(SOURCES, TARGETS, SpecialIds(), SpecialIds())
DOCUMENTS = [[5, 6, 7], [8], [9, 10, 11, 12, 5, 9, 18], [7, 17], [5, 5]]
TEXT = EncodedText(DOCUMENTS, SpecialIds())
BLOCKS = epoch_blocks(TEXT, 12, apart=True, shuffle=False)
ROW = epoch_blocks(TEXT, 9, apart=False, shuffle=False)
EXACT = {"rtol": 0, "atol": 1e-10}
ALWAYS = {"rate": 0.6, "schedule": MixingSchedule.constant, "end_step": 0}


def module(scrambled, config, sampling=None, **optim):
    """A module whose network has no dropout, in training."""
    model = scrambled(config).requires_grad_(True)
    how = ScheduledSamplingConfig(**(ALWAYS | (sampling or {})))
    return TranslationModule(model, OptimConfig(**optim), 24, sampling=how).train()


def language_model(scrambled, config, sampling=None):
    model = scrambled(config).requires_grad_(True)
    how = ScheduledSamplingConfig(**(ALWAYS | (sampling or {})))
    return LanguageModelModule(model, OptimConfig(), 24, 20, TextSize(characters=30, bytes=40), sampling=how).train()


def mixer(net, batch, seed=1, chunk=None):
    torch.manual_seed(seed)
    return Mixer(net.model, net.target(batch), net.sampling.rate, net.sampling, (PAD, BOS, EOS), chunk)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("constant", [0.0, 0.0, 0.8, 0.8, 0.8, 0.8, 0.8]),
        ("linear", [0.0, 0.0, 0.2, 0.4, 0.6, 0.8, 0.8]),
        # k = 0.01^(1/4), and (1 - k^i) / (1 - 0.01) of it
        ("exponential", [0.0, 0.0] + [0.8 * (1 - 0.01 ** (i / 4)) / 0.99 for i in (1, 2, 3)] + [0.8, 0.8]),
    ],
)
def test_the_share_rises_from_0_at_the_start_to_the_rate_at_the_end(kind, values):
    how = ScheduledSamplingConfig(rate=0.8, schedule=MixingSchedule[kind], start_step=3, end_step=7)
    found = [mixing_rate(step, how) for step in (1, 3, 4, 5, 6, 7, 1000)]
    assert found == pytest.approx(values, abs=1e-12)


@pytest.mark.parametrize("length", [2, 10, 1000, 100_000])
def test_the_inverse_sigmoid_is_that_of_the_paper_with_the_k_that_leaves_a_hundredth(length):
    low, high = 1e-3, float(length)  # k by bisection: k / (k + exp(n / k)) rises with k
    for _ in range(200):
        k = (low + high) / 2
        last = k / (k + math.exp(min(700.0, length / k)))
        low, high = (k, high) if last < LEFT else (low, k)
    first = k / (k + 1)
    how = ScheduledSamplingConfig(
        rate=0.5, schedule=MixingSchedule.inverse_sigmoid, start_step=20, end_step=20 + length
    )
    for i in {1, length // 3, length // 2, length - 1}:
        expected = 0.5 * (first - k / (k + math.exp(i / k))) / (first - last)
        assert mixing_rate(20 + i, how) == pytest.approx(expected, rel=1e-6)
    assert mixing_rate(20, how) == 0.0
    assert mixing_rate(20 + length, how) == 0.5


@pytest.mark.parametrize("kind", list(MixingSchedule))
def test_every_schedule_rises_and_stays(kind):
    how = ScheduledSamplingConfig(rate=1.0, schedule=kind, start_step=5, end_step=300)
    shares = [mixing_rate(step, how) for step in range(1, 400)]
    assert shares == sorted(shares)
    assert shares[4] == 0.0
    assert shares[5] > 0.0
    assert shares[299:] == [1.0] * 100
    at_once = dataclasses.replace(how, end_step=5)
    assert [mixing_rate(step, at_once) for step in (5, 6)] == [0.0, 1.0]


def single_logits(net, batch, row, ids):
    """Logits at every position of one row, read alone and without padding, of candidates alone."""
    if isinstance(net, LanguageModelModule):
        documents = batch.documents[row : row + 1, : len(ids)] if batch.documents is not None else None
        logits = net.model.logits(net.model.read(torch.tensor([ids]), documents))[0]
    else:
        source = torch.tensor([SOURCES[row]])
        logits = net.model(source, torch.ones_like(source, dtype=torch.bool), torch.tensor([ids]))[0]
    logits[:, [PAD, BOS, EOS]] = -math.inf
    return logits.detach()


def replaced_by_loops(net, batch, hand, before):
    """The ids that a pass is given when `before` was given to the pass before, one position after the other."""
    target = net.target(batch)
    expected = target.ids.tolist()
    for row, where in enumerate(hand.where.tolist()):
        logits = single_logits(net, batch, row, before[row])
        for place in range(len(before[row])):
            if where[place]:
                chances = (logits[place - 1] / net.sampling.temperature).softmax(-1).tolist()
                piece = max(range(V), key=chances.__getitem__)
                if net.sampling.replacement is Replacement.sample:
                    left, piece = hand.quantiles[row, place].item(), 0
                    while (left := left - chances[piece]) >= 0:
                        piece += 1
                expected[row][place] = piece
    return expected


def real_rows(ids, real):
    return [row[:length] for row, length in zip(ids.tolist(), real.sum(1).tolist(), strict=True)]


@pytest.mark.parametrize("name", ["original", "pre_ln", "gpt2", "llama", "prefix_lm"])
@pytest.mark.parametrize("replacement", ["argmax", "sample"])
def test_what_is_given_next_is_what_a_loop_over_positions_puts_together(families, scrambled, name, replacement):
    how = {"replacement": Replacement[replacement], "temperature": 0.5 if replacement == "sample" else 1.0}
    net = module(scrambled, families(name), how)
    hand = mixer(net, BATCH, chunk=2)
    given = hand.mix(net.read(BATCH))
    assert given.mixture is None
    expected = replaced_by_loops(net, BATCH, hand, real_rows(BATCH.tgt_in, BATCH.tgt_valid))
    assert given.ids.tolist() == expected
    assert 0 < hand.where.sum() < net.target(BATCH).replaceable.sum()
    assert (given.ids != BATCH.tgt_in).sum() > 3


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("blocks", [BLOCKS, ROW], ids=["documents_apart", "in_a_row"])
def test_pieces_of_plain_text_are_replaced_by_what_stands_before_them_in_their_document(
    families, scrambled, name, blocks
):
    net = language_model(scrambled, families(name), {"rate": 1.0})
    batch = blocks[list(range(len(blocks)))]
    hand = mixer(net, batch)
    given = hand.mix(net.read(batch))
    lengths = [sum(part.length for part in block) for block in blocks.blocks]
    rows = [row[:length] for row, length in zip(batch.ids.tolist(), lengths, strict=True)]
    assert given.ids.tolist() == replaced_by_loops(net, batch, hand, rows)
    for row, length in enumerate(lengths):
        starts = [sum(part.length for part in blocks.blocks[row][:number]) for number in range(len(blocks.blocks[row]))]
        for place in range(batch.ids.shape[1]):
            kept = place in starts or place >= length or batch.ids[row, place] == BOS
            if place == length - 1 and not batch.counted[row, place]:
                continue  # an EOS that nothing is predicted from
            assert hand.where[row, place].item() is not kept, (row, place)


@pytest.mark.parametrize("name", ["original", "llama"])
@pytest.mark.parametrize("replacement", ["argmax", "sample"])
def test_as_many_passes_as_pieces_give_what_replacing_one_piece_after_the_other_gives(
    families, scrambled, name, replacement
):
    net = module(scrambled, families(name), {"replacement": Replacement[replacement]})
    hand = mixer(net, BATCH)
    current = BATCH
    for _ in range(BATCH.tgt_in.shape[1] - 1):
        current = net.with_target(BATCH, hand.mix(net.read(current)).ids)
    one_by_one = real_rows(BATCH.tgt_in, BATCH.tgt_valid)
    for place in range(1, BATCH.tgt_in.shape[1]):
        for row, expected in enumerate(replaced_by_loops(net, BATCH, hand, one_by_one)):
            if place < len(one_by_one[row]):
                one_by_one[row][place] = expected[place]
    assert real_rows(current.tgt_in, BATCH.tgt_valid) == one_by_one


@pytest.mark.parametrize("name", ["original", "llama", "gpt2"])
def test_a_mixture_is_the_mean_of_all_candidates_embeddings_treated_like_one_of_them(families, scrambled, name):
    net = module(scrambled, families(name), {"replacement": Replacement.mixture, "temperature": 0.7})
    hand = mixer(net, BATCH, chunk=4)
    given = hand.mix(net.read(BATCH))
    assert given.ids.tolist() == BATCH.tgt_in.tolist()
    rows, number = net.model.decoder.embedding.rows.weight, 0
    for row, ids in enumerate(real_rows(BATCH.tgt_in, BATCH.tgt_valid)):
        chances = (single_logits(net, BATCH, row, ids) / 0.7).softmax(-1)
        for place in range(BATCH.tgt_in.shape[1]):
            if hand.where[row, place]:
                mean = sum(chances[place - 1, piece] * rows[piece] for piece in range(V))
                torch.testing.assert_close(given.mixture.vectors[number], mean, **EXACT)
                number += 1
    assert number == len(given.mixture.vectors) > 0


@pytest.mark.parametrize("name", ["original", "llama"])
def test_the_gradient_goes_through_the_last_pass_alone(families, scrambled, name):
    net = module(scrambled, families(name))
    torch.manual_seed(1)
    losses = net.training_loss(BATCH)
    losses.loss.backward()
    found = [parameter.grad.clone() for parameter in net.parameters()]
    mixed = net.with_target(BATCH, mixer(net, BATCH).mix(net.read(BATCH)).ids)
    net.zero_grad()
    plain = net.loss(net.read(mixed), BATCH)
    plain.loss.backward()
    assert losses.loss.item() == pytest.approx(plain.loss.item(), abs=1e-10)
    assert losses.nll.item() == pytest.approx(plain.nll.item(), abs=1e-10)
    for one, parameter in zip(found, net.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad, rtol=1e-9, atol=1e-11)
    first = net.loss(net.read(BATCH), BATCH)
    assert losses.further["first_pass_loss"].item() == pytest.approx(first.loss.item(), abs=1e-10)
    assert losses.further["first_pass_pieces"].item() == 14
    assert losses.further["replaceable"].item() == 11


def test_gradients_of_all_passes_are_those_of_their_mean_loss(families, scrambled):
    net = module(scrambled, families("original"), {"passes": 3, "gradient": GradientThrough.all})
    torch.manual_seed(1)
    losses = net.training_loss(BATCH)
    losses.loss.backward()
    found = [parameter.grad.clone() for parameter in net.parameters()]
    hand, batches = mixer(net, BATCH), [BATCH]
    for _ in range(2):
        batches.append(net.with_target(BATCH, hand.mix(net.read(batches[-1])).ids))
    net.zero_grad()
    apart = [net.loss(net.read(batch), BATCH) for batch in batches]
    (sum(one.loss for one in apart) / 3).backward()
    assert losses.loss.item() == pytest.approx(sum(one.loss.item() for one in apart) / 3, abs=1e-10)
    assert losses.nll.item() == pytest.approx(apart[-1].nll.item(), abs=1e-10)
    for one, parameter in zip(found, net.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["original", "gpt2"])
@pytest.mark.parametrize("chunk", [None, 3])
def test_the_gradient_of_all_passes_goes_through_a_mixture_too(families, scrambled, name, chunk):
    how = {"replacement": Replacement.mixture, "gradient": GradientThrough.all}
    net = module(scrambled, families(name), how, loss_chunk=chunk)

    def loss():
        torch.manual_seed(1)
        return net.training_loss(BATCH).loss

    loss().backward()
    generator = torch.Generator().manual_seed(3)
    steps = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in net.parameters()]
    slope = sum((p.grad * step).sum().item() for p, step in zip(net.parameters(), steps, strict=True))
    values = []
    with torch.no_grad():
        for scale in (1e-6, -2e-6):
            for parameter, step in zip(net.parameters(), steps, strict=True):
                parameter.add_(step, alpha=scale)
            values.append(loss().item())
    assert (values[0] - values[1]) / 2e-6 == pytest.approx(slope, rel=1e-5)


def test_without_gradients_of_the_first_pass_a_mixture_is_a_constant(families, scrambled):
    net = module(scrambled, families("original"), {"replacement": Replacement.mixture})
    torch.manual_seed(1)
    net.training_loss(BATCH).loss.backward()
    found = [parameter.grad.clone() for parameter in net.parameters()]
    with torch.no_grad():
        given = mixer(net, BATCH).mix(net.read(BATCH))
    net.zero_grad()
    net.loss(net.read(BATCH, given.mixture), BATCH).loss.backward()
    for one, parameter in zip(found, net.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("replacement", list(Replacement))
@pytest.mark.parametrize("choice", list(MixingChoice))
def test_the_size_of_chunks_changes_nothing(families, scrambled, replacement, choice):
    found = []
    for chunk in (None, 1, 3):
        how = {"replacement": replacement, "choice": choice, "sure": 0.05, "surest": 0.1, "passes": 3}
        net = module(scrambled, families("llama"), how, loss_chunk=chunk)
        torch.manual_seed(5)
        loss = net.training_loss(BATCH).loss
        loss.backward()
        found.append([loss.detach(), *(parameter.grad for parameter in net.parameters())])
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-11)


def test_the_encoder_reads_a_batch_once_for_all_passes(families, scrambled):
    net = module(scrambled, families("original"), {"passes": 4})
    calls = {"encoder": 0, "decoder": 0}
    for name in calls:
        part = getattr(net.model, name)
        part.register_forward_hook(lambda *_, name=name: calls.__setitem__(name, calls[name] + 1))
    net.training_loss(BATCH)
    assert calls == {"encoder": 1, "decoder": 4}


@pytest.mark.parametrize("name", ["original", "llama"])
def test_no_replacement_is_eos_bos_or_padding(families, scrambled, name):
    for replacement in (Replacement.argmax, Replacement.sample):
        net = module(scrambled, families(name, output_bias=True), {"rate": 1.0, "replacement": replacement})
        with torch.no_grad():
            net.model.output_bias[[PAD, BOS, EOS]] += 50
        hand = mixer(net, BATCH)
        given = hand.mix(net.read(BATCH))
        assert not torch.isin(given.ids[hand.where], torch.tensor([PAD, BOS, EOS])).any()
    net.sampling = dataclasses.replace(net.sampling, replacement=Replacement.mixture)
    vectors = mixer(net, BATCH).mix(net.read(BATCH)).mixture.vectors.detach()
    with torch.no_grad():
        net.model.decoder.embedding.rows.weight[[PAD, EOS]] = 1e6
    again = mixer(net, BATCH).mix(net.read(BATCH)).mixture.vectors  # BOS is read, so its row stays
    assert vectors.abs().max() < 1e3
    assert again.abs().max() < 1e3


@pytest.mark.parametrize("seed", [1, 2])
def test_confidence_keeps_unsure_pieces_and_puts_random_ones_of_the_sentence_where_it_is_surest(
    families, scrambled, seed
):
    net = module(scrambled, families("original"), {"choice": MixingChoice.confidence, "rate": 1.0})
    sentences, confidence, best = real_rows(BATCH.tgt_in, BATCH.tgt_valid), {}, {}
    for row, ids in enumerate(sentences):
        source = torch.tensor([SOURCES[row]])
        chances = net.model(source, torch.ones_like(source, dtype=torch.bool), torch.tensor([ids]))[0].softmax(-1)
        candidates = single_logits(net, BATCH, row, ids).argmax(-1)
        for place in range(1, len(ids)):
            confidence[row, place] = chances[place - 1, ids[place]].item()
            best[row, place] = candidates[place - 1].item()
    ranked = sorted(confidence.values())
    sure, surest = (ranked[3] + ranked[4]) / 2, (ranked[7] + ranked[8]) / 2
    net.sampling = dataclasses.replace(net.sampling, sure=sure, surest=surest)
    hand = mixer(net, BATCH, seed)
    given = hand.mix(net.read(BATCH))
    for (row, place), value in confidence.items():
        found, right = given.ids[row, place].item(), BATCH.tgt_in[row, place].item()
        if value <= sure:
            assert found == right
        elif value <= surest:
            assert found == best[row, place]
        else:
            assert found in sentences[row][1:]
        assert hand.where[row, place].item() is (value > sure)
    before = hand.where.clone(), hand.others.clone()
    hand.mix(net.read(net.with_target(BATCH, given.ids)))
    assert torch.equal(before[0], hand.where)
    assert torch.equal(before[1], hand.others)


def test_random_pieces_of_the_sentence_are_each_of_its_pieces_as_often():
    torch.manual_seed(1)
    ids = torch.tensor([[1, 7, 7, 8, 0], [1, 9, 10, 11, 12]]).repeat(4000, 1)
    real = torch.tensor([[False, True, True, True, False], [False, True, True, True, True]]).repeat(4000, 1)
    found = _random_pieces(ids, real)
    assert torch.equal(found[~real], ids[~real])
    first, second = found[0::2][real[0::2]], found[1::2][real[1::2]]
    assert {piece: round((first == piece).double().mean().item(), 1) for piece in (7, 8)} == {7: 0.7, 8: 0.3}
    for piece in (9, 10, 11, 12):
        assert (second == piece).double().mean().item() == pytest.approx(0.25, abs=0.02)
    none = torch.zeros(2, 1, dtype=torch.bool)
    assert torch.equal(_random_pieces(torch.ones(2, 1, dtype=torch.long), none), torch.ones(2, 1, dtype=torch.long))


def test_the_share_makes_the_rule_of_confidence_rarer(families, scrambled):
    wide = make_batch(SOURCES * 60, TARGETS * 60, SpecialIds(), SpecialIds())
    net = module(scrambled, families("original"), {"choice": MixingChoice.confidence, "rate": 1.0, "sure": 0.0})
    counts = {}
    for share in (1.0, 0.3):
        torch.manual_seed(1)
        hand = Mixer(net.model, net.target(wide), share, net.sampling, (PAD, BOS, EOS), None)
        hand.mix(net.read(wide))
        counts[share] = hand.where.sum().item()
    assert counts[1.0] == 60 * 11
    assert counts[0.3] / counts[1.0] == pytest.approx(0.3, abs=0.05)


def test_samples_have_the_frequencies_of_the_tempered_distribution(families, scrambled):
    wide = make_batch([SOURCES[0]] * 8000, [[6, 2]] * 8000, SpecialIds(), SpecialIds())
    how = {"replacement": Replacement.sample, "rate": 1.0, "temperature": 0.5}
    net = module(scrambled, families("original"), how)
    with torch.no_grad():
        given = mixer(net, wide).mix(net.read(wide))
    chances = (single_logits(net, wide, 0, [BOS]) / 0.5).softmax(-1)[0]
    found = torch.bincount(given.ids[:, 1], minlength=V) / 8000
    assert (found - chances).abs().max().item() < 0.02


def test_first_passes_without_gradients_leave_those_of_the_last_one_whole_in_bf16(families, scrambled):
    net = module(scrambled, families("original")).float()
    torch.manual_seed(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        net.training_loss(BATCH).loss.backward()
    found = {name: parameter.grad.double() for name, parameter in net.named_parameters()}
    exact = module(scrambled, families("original"))
    mixed = exact.with_target(BATCH, mixer(exact, BATCH).mix(exact.read(BATCH)).ids)
    exact.loss(exact.read(mixed), BATCH).loss.backward()
    for name, parameter in exact.named_parameters():
        assert (found[name] - parameter.grad).norm() < 0.3 * parameter.grad.norm() + 1e-2, name


@pytest.mark.parametrize("name", ["original", "llama"])
def test_at_a_share_of_1_parts_of_a_batch_have_the_gradient_of_the_whole(families, scrambled, name):
    def gradient(parts):
        net = module(scrambled, families(name), {"rate": 1.0, "passes": 3})
        for rows in parts:
            pairs = [SOURCES[i] for i in rows], [TARGETS[i] for i in rows]
            net.training_loss(make_batch(*pairs, SpecialIds(), SpecialIds())).loss.backward()
        return [parameter.grad for parameter in net.parameters()]

    for one, other in zip(gradient([[0, 1, 2]]), gradient([[0], [1, 2]]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_each_rank_of_a_new_run_draws_numbers_of_its_own_and_the_first_those_of_a_run_alone(
    families, scrambled, monkeypatch
):
    net, drawn = module(scrambled, families("original")), {}
    monkeypatch.setattr(TranslationModule, "trainer", SimpleNamespace(default_root_dir="run"))
    for number in range(3):
        monkeypatch.setattr("seq2seq.training.module.rank", lambda number=number: number)
        torch.manual_seed(4)
        net._go_on()
        drawn[number] = torch.rand(5).tolist()
    torch.manual_seed(4)
    assert drawn[0] == torch.rand(5).tolist()
    assert len({tuple(values) for values in drawn.values()}) == 3
