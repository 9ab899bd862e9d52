"""R-Drop and word dropout."""

import dataclasses

import pytest
import torch

from seq2seq.config import OptimConfig
from seq2seq.corpus.batching import make_batch
from seq2seq.corpus.documents import TextSize
from seq2seq.corpus.text_blocks import EncodedText, epoch_blocks
from seq2seq.text.special import SpecialIds
from seq2seq.training.objectives import LanguageModelModule, TranslationModule
from seq2seq.training.regularization import divergence, word_dropout

SOURCES = [[5, 6, 7, 2], [8, 2], [9, 10, 11, 12, 5, 2]]
TARGETS = [[6, 13, 2], [9, 10, 11, 14, 15, 2], [5, 6, 7, 8, 2]]
BATCH = make_batch(SOURCES, TARGETS, SpecialIds(), SpecialIds())
BLOCKS = epoch_blocks(EncodedText([[5, 6, 7], [8], [9, 10, 11, 12, 5, 9]], SpecialIds()), 12, apart=True, shuffle=False)
TEXT = BLOCKS[list(range(len(BLOCKS)))]


def module(scrambled, config, special=SpecialIds(), **optim):  # noqa: B008
    model = scrambled(config).requires_grad_(True)
    options = OptimConfig(label_smoothing=0.1, **optim)
    return TranslationModule(model, options, 24, source_special=special, target_special=special).train()


def language_model(scrambled, config, special=SpecialIds(), **optim):  # noqa: B008
    model = scrambled(config).requires_grad_(True)
    size = TextSize(characters=30, bytes=40)
    options = OptimConfig(label_smoothing=0.1, **optim)
    return LanguageModelModule(model, options, 24, 20, size, special=special).train()


@pytest.mark.parametrize("chunk", [None, 1, 4])
def test_the_divergence_is_that_of_a_loop_over_places_and_pieces(families, scrambled, chunk):
    model = scrambled(families("marian"))
    generator = torch.Generator().manual_seed(1)
    one, other = (torch.randn(2, 3, 24, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(2))
    counted = torch.tensor([[True, False, True], [True, True, False]])
    p, q = (model.logits(hidden).softmax(-1) for hidden in (one, other))
    expected = 0.0
    for row in range(2):
        for place in range(3):
            if counted[row, place]:
                for piece in range(19):
                    a, b = p[row, place, piece], q[row, place, piece]
                    expected = expected + a * (a / b).log() / 2 + b * (b / a).log() / 2
    found = divergence(model, one, other, counted, chunk)
    assert found.item() == pytest.approx(expected.item(), abs=1e-10)
    gradients = torch.autograd.grad(found, (one, other))
    for mine, theirs in zip(gradients, torch.autograd.grad(expected, (one, other)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


KINDS = ["original", "gpt2", "source_too", "text"]


def of_kind(kind, families, scrambled, dropout=0.0, **optim):
    """A module and a batch of it; with dropout the same random numbers are drawn by equal calls."""
    config = families("original" if kind == "original" else "gpt2", dropout=dropout)
    if kind == "text":
        return language_model(scrambled, config, **optim), TEXT
    return module(scrambled, config, loss_on_source=kind == "source_too", **optim), BATCH


@pytest.mark.parametrize("kind", KINDS)
def test_without_dropout_r_drop_is_the_plain_loss_and_its_divergence_0(families, scrambled, kind):
    plain, batch = of_kind(kind, families, scrambled)
    doubled, _ = of_kind(kind, families, scrambled, r_drop=5.0, loss_chunk=4)
    one, two = plain.training_loss(batch), doubled.training_loss(batch)
    one.loss.backward()
    two.loss.backward()
    assert two.further["divergence"].item() == pytest.approx(0.0, abs=1e-12)
    for name in ("loss", "nll", "correct", "source_nll"):
        left, right = getattr(one, name), getattr(two, name)
        if left is None:
            assert right is None
        else:
            assert right.item() == pytest.approx(left.item(), abs=1e-10)
    for mine, theirs in zip(plain.parameters(), doubled.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_r_drop_is_the_papers_loss_halved(families, scrambled, kind):
    net, batch = of_kind(kind, families, scrambled, dropout=0.3, r_drop=3.0)
    torch.manual_seed(4)
    found = net.training_loss(batch)
    torch.manual_seed(4)
    hidden = net.read(net.twice(batch))
    rows = len(hidden) // 2
    l1, l2 = (net.loss(half, batch).loss.item() for half in (hidden[:rows], hidden[rows:]))
    p, q = (net.model.logits(half)[net.learned(batch)].softmax(-1) for half in (hidden[:rows], hidden[rows:]))
    assert len(p) == net.num_pieces(batch)
    apart = ((p * (p / q).log()).sum() + (q * (q / p).log()).sum()).item() / 2
    assert apart > 0.1
    assert l1 != l2
    assert found.loss.item() == pytest.approx((l1 + l2 + 3.0 * apart) / 2, abs=1e-9)
    assert found.further["divergence"].item() == pytest.approx(apart, abs=1e-9)


def test_r_drop_is_one_pass_over_twice_the_rows_and_is_logged_by_the_piece(families, scrambled):
    net, batch = of_kind("original", families, scrambled, dropout=0.3, r_drop=3.0)
    rows = []
    net.model.encoder.register_forward_hook(lambda _, inputs, __: rows.append(len(inputs[0])))
    losses = net.training_loss(batch)
    assert rows == [6]
    net._count(net.train_sums, batch, losses, net.num_pieces(batch))
    metrics = net.extra_training_metrics(net.train_sums.over_ranks())
    assert metrics == {"train/r_drop_divergence": pytest.approx(losses.further["divergence"].item() / 14)}
    plain, _ = of_kind("original", families, scrambled)
    assert plain.extra_training_metrics(plain.train_sums) == {}


def test_word_dropout_turns_each_replaceable_piece_into_the_unknown_one_as_often_as_said():
    ids = torch.arange(4, 24).repeat(1000, 1)
    replaceable = torch.zeros_like(ids, dtype=torch.bool)
    replaceable[:, 3:15] = True
    torch.manual_seed(1)
    found = word_dropout(ids, replaceable, 0.3, 3)
    changed = found != ids
    assert (found[changed] == 3).all()
    assert not changed[~replaceable].any()
    assert changed[replaceable].double().mean().item() == pytest.approx(0.3, abs=0.02)
    by_row = changed.sum(1)
    assert by_row.unique().numel() > 5  # by the piece, not by the row


@pytest.mark.parametrize("name", ["original", "gpt2"])
def test_pieces_of_both_sides_go_but_never_bos_eos_and_padding_and_what_is_predicted_stays(families, scrambled, name):
    net = module(scrambled, families(name), source_word_dropout=0.999999, target_word_dropout=0.999999)
    torch.manual_seed(1)
    given = net.with_word_dropout(BATCH)
    assert given.src.tolist() == [[3, 3, 3, 2, 0, 0], [3, 2, 0, 0, 0, 0], [3, 3, 3, 3, 3, 2]]
    assert given.tgt_in.tolist() == [[1, 3, 3, 0, 0, 0], [1, 3, 3, 3, 3, 3], [1, 3, 3, 3, 3, 0]]
    assert torch.equal(given.tgt_out, BATCH.tgt_out)
    expected = net.loss(net.read(given), BATCH).loss.item()
    assert net.training_loss(BATCH).loss.item() == pytest.approx(expected, abs=1e-10)
    assert net.validation_loss(BATCH).loss.item() != pytest.approx(expected, abs=1e-3)
    only = module(scrambled, families(name), source_word_dropout=0.999999).with_word_dropout(BATCH)
    assert torch.equal(only.tgt_in, BATCH.tgt_in)
    assert not torch.equal(only.src, BATCH.src)


def test_the_right_pieces_of_a_source_with_word_dropout_are_learned(families, scrambled):
    net = module(scrambled, families("gpt2"), loss_on_source=True, source_word_dropout=0.999999)
    given = dataclasses.replace(BATCH, src=torch.where(BATCH.src > 3, 3, BATCH.src))
    expected = net.loss(net.read(given), BATCH)
    found = net.training_loss(BATCH)
    assert found.source_nll.item() == pytest.approx(expected.source_nll.item(), abs=1e-10)
    assert found.source_nll.item() != pytest.approx(net.loss(net.read(given), given).source_nll.item(), abs=1e-3)


def test_pieces_of_plain_text_go_but_never_bos_eos_and_padding(families, scrambled):
    net = language_model(scrambled, families("llama"), target_word_dropout=0.999999)
    given = net.with_word_dropout(TEXT)
    for row, ids in enumerate(TEXT.ids.tolist()):
        assert given.ids[row].tolist() == [3 if piece > 3 else piece for piece in ids]
    assert torch.equal(given.targets, TEXT.targets)
    in_a_row = epoch_blocks(EncodedText([[5, 6], [8]], SpecialIds()), 9, apart=False, shuffle=False)[[0]]
    assert net.with_word_dropout(in_a_row).ids.tolist() == [[1, 3, 3, 2, 1, 3]]


def test_word_dropout_without_an_unknown_piece_is_refused(families, scrambled):
    special = SpecialIds(pad=0, bos=0, eos=0, unk=0)
    for option in ("source_word_dropout", "target_word_dropout"):
        with pytest.raises(ValueError, match=f"optim.{option}=0.1 puts the unknown piece .* does not have"):
            module(scrambled, families("gpt2"), special, **{option: 0.1})
    with pytest.raises(ValueError, match=r"optim.target_word_dropout=0.2 puts the unknown .*; leave the option out"):
        language_model(scrambled, families("gpt2"), special, target_word_dropout=0.2)
    language_model(scrambled, families("gpt2"), special)


@pytest.mark.parametrize("kind", KINDS)
def test_when_all_is_off_a_loss_is_one_pass_and_no_number_is_drawn_but_by_dropout(families, scrambled, kind):
    net, batch = of_kind(kind, families, scrambled, dropout=0.2)
    torch.manual_seed(9)
    found = net.training_loss(batch)
    after = torch.get_rng_state()
    torch.manual_seed(9)
    model = net.model
    if kind == "text":
        hidden = model.read(batch.ids, batch.documents)
        expected = net.losses(hidden, batch.targets, batch.counted, 0.1)
    else:
        hidden = model.decode(batch.src, batch.src_valid, batch.tgt_in, batch.tgt_valid)
        expected = net.losses(hidden, batch.tgt_out, batch.tgt_valid, 0.1)
    assert torch.equal(after, torch.get_rng_state())
    assert found.nll.item() == expected.nll.item()
    if kind != "source_too":
        assert found.loss.item() == expected.loss.item()
