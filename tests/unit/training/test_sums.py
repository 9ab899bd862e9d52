"""Sums of losses: numbers only when asked, and then the right ones."""

import pytest
import torch

from seq2seq.config import OptimConfig, ScheduledSamplingConfig
from seq2seq.corpus.batching import EncodedPairs
from seq2seq.corpus.documents import TextSize
from seq2seq.corpus.text_blocks import EncodedText, epoch_blocks
from seq2seq.text.special import SpecialIds
from seq2seq.training.loss import BatchLoss
from seq2seq.training.objectives import LanguageModelModule, TranslationModule
from seq2seq.training.sums import Sums


def losses(number, source=None) -> BatchLoss:
    values = [torch.tensor(number / 7 + part) for part in (0.1, 0.2)]
    return BatchLoss(*values, torch.tensor(number), source, {"replaced": torch.tensor(2 * number)})


def test_sums_are_those_of_single_additions_in_double_precision():
    sums, loss, nll = Sums(), 0.0, 0.0
    for number in range(1, 40):
        sums.add(losses(number, torch.tensor(0.5) if number % 2 else None))
        loss += float(losses(number).loss)
        nll += float(losses(number).nll)
    numbers = sums.numbers()
    assert (numbers["loss"], numbers["nll"], numbers["correct"]) == (loss, nll, 780)
    assert (numbers["source_nll"], numbers["replaced"], numbers["tokens"]) == (10.0, 1560, 0)
    assert "waiting" not in numbers
    assert Sums(**numbers).numbers() == sums.over_ranks().numbers() == numbers


def test_a_snapshot_stays_as_it_was_and_no_graph_is_kept():
    sums = Sums(tokens=3)
    sums.add(BatchLoss(torch.ones((), requires_grad=True) * 2, torch.ones(()), torch.tensor(1)))
    before = sums.snapshot()
    sums.add(losses(1))
    sums.tokens += 4
    assert not sums.waiting[0]["loss"].requires_grad
    assert (before.numbers()["loss"], before.tokens) == (2.0, 3)
    assert sums.numbers()["loss"] == pytest.approx(2 + 1 / 7 + 0.1)


EXTRAS = {
    "plain": ({}, {}),
    "r_drop": ({"r_drop": 1.0, "source_word_dropout": 0.5, "target_word_dropout": 0.5}, {}),
    "sampled": ({}, {"rate": 0.5, "end_step": 0}),
    "on_source": ({"loss_on_source": True}, {}),
}


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        *((name, "plain") for name in ("modern", "multi_query", "llama", "prefix_lm")),
        *((name, extra) for name in ("original", "gpt2", "text") for extra in ("plain", "r_drop", "sampled")),
        ("gpt2", "on_source"),
    ],
)
def test_a_batch_that_counts_for_nothing_gives_gradients_of_zero_wherever_it_goes(families, scrambled, name, extra):
    optim, sampling = EXTRAS[extra]
    model = scrambled(families("gpt2" if name == "text" else name, dropout=0.3)).requires_grad_(True).train()
    options, mixing = OptimConfig(**optim), ScheduledSamplingConfig(**sampling)
    if name == "text":
        special = SpecialIds()
        batch = epoch_blocks(EncodedText([[5, 6, 7]], special), 4, apart=True)[[]]
        size = TextSize(characters=3, bytes=3)
        net: TranslationModule | LanguageModelModule
        net = LanguageModelModule(model, options, 24, 20, size, sampling=mixing, special=special)
    else:
        batch = EncodedPairs([[5]], [[6]], SpecialIds(), SpecialIds())[[]]
        net = TranslationModule(model, options, 24, sampling=mixing)
    assert net.num_pieces(batch) == batch.num_target_tokens == 0
    (net.training_loss(batch).loss * 0.0).backward()
    assert all(weight.grad is not None and not weight.grad.any() for weight in model.parameters())
    net._count(net.train_sums, batch, net.validation_loss(batch), 0)
    assert net.train_sums == Sums()
