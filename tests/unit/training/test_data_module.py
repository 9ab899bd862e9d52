"""The training text, epoch by epoch."""

import dataclasses
import logging
import os
import signal
from itertools import chain

import pytest
import torch

from seq2seq.config import DataConfig, TokenizerConfig
from seq2seq.training.data_module import ParallelDataModule, Position


def config(**changes) -> DataConfig:
    plain = DataConfig(train_source="s", train_target="t", batch_tokens=150, max_length=60)
    return dataclasses.replace(plain, **changes)


def sampling(alpha=0.3) -> TokenizerConfig:
    return TokenizerConfig(vocab_size=280, sampling_alpha=alpha, sampling_nbest=8)


def test_pairs_beyond_the_limit_are_left_out_and_counted(text, tokenizers, caplog):
    with caplog.at_level(logging.WARNING):
        data = ParallelDataModule(text, text, tokenizers, config(max_length=12))
    longest = [
        max(len(tokenizers.source.encode(line)) + 1 for line in pair)
        for pair in zip(text.source, text.target, strict=True)
    ]
    assert data.num_left_out == sum(length > 12 for length in longest) > 0
    assert len(data.plain) == len(text) - data.num_left_out
    assert f"{data.num_left_out} of {len(text)} training pairs have more than data.max_length=12" in caplog.text
    assert len(data.valid) == len(text)


def test_a_limit_that_leaves_nothing_is_refused(text, tokenizers):
    with pytest.raises(ValueError, match=r"every training pair has more than data\.max_length=1 pieces"):
        ParallelDataModule(text, text, tokenizers, config(max_length=1))


def test_an_epoch_holds_every_pair_once_and_the_next_one_in_another_order(text, tokenizers):
    data = ParallelDataModule(text, text, tokenizers, config(), accumulate=3)
    first = data.epoch_batches(data.epoch_pairs(0), 0)
    second = data.epoch_batches(data.epoch_pairs(1), 1)
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(len(text)))
    assert first != second
    updates = list(data.train_dataloader())
    assert [len(update) for update in updates[:-1]] == [3] * (len(updates) - 1)
    assert [list(batch.indices) for update in updates for batch in update] == first


def test_v7_sampling_differs_between_epochs_and_never_touches_validation(text, tokenizers):
    data = ParallelDataModule(text, text, tokenizers, config(tokenizer=sampling()))
    again = ParallelDataModule(text, text, tokenizers, config(tokenizer=sampling()))
    first, second = data.epoch_pairs(0), data.epoch_pairs(1)
    assert first.sources != second.sources
    assert first.sources != data.plain.sources
    assert again.epoch_pairs(1).sources == second.sources
    assert data.valid.sources == [tokenizers.source.encode(line) for line in text.source]
    decoded = [tokenizers.source.decode(ids) for ids in first.sources]
    assert decoded == text.source


def test_a_resumed_epoch_leaves_out_what_was_trained_on(text, tokenizers):
    data = ParallelDataModule(text, text, tokenizers, config())
    whole = [batch.indices for (batch,) in data.train_dataloader()]
    data.load_state_dict({"epoch": 0, "steps": 4})
    assert data.resumed == Position(0, 4)
    assert [batch.indices for (batch,) in data.train_dataloader()] == whole[4:]


def test_the_steps_of_two_ranks_are_those_of_one_with_twice_the_batches(text, tokenizers, monkeypatch):
    alone = ParallelDataModule(text, text, tokenizers, config(), accumulate=6)
    joined = [[batch.indices for batch in update] for update in alone.train_dataloader()]
    shares = []
    for number in (0, 1):
        monkeypatch.setattr("seq2seq.training.data_module.rank", lambda number=number: number)
        data = ParallelDataModule(text, text, tokenizers, config(), accumulate=3, num_ranks=2)
        assert (data.steps_an_epoch(), data.padding_share()) == (alone.steps_an_epoch(), alone.padding_share())
        shares.append([[batch.indices for batch in update] for update in data.train_dataloader()])
    for step, first, second in zip(joined, *shares, strict=True):
        assert len(first) == len(second)
        assert first == step[::2]
        assert [indices for indices in second if indices] == step[1::2]


def test_validation_batches_are_spread_over_ranks_that_have_equally_many(text, tokenizers, monkeypatch):
    whole = ParallelDataModule(text, text, tokenizers, config()).validation()[1]
    num_ranks = len(whole) + 2
    found = []
    for number in range(num_ranks):
        monkeypatch.setattr("seq2seq.training.data_module.rank", lambda number=number: number)
        data = ParallelDataModule(text, text, tokenizers, config(), num_ranks=num_ranks)
        (batch,) = data.val_dataloader()
        found.append(list(batch.indices))
    assert found == [*whole, [], []]


@pytest.mark.parametrize(("accumulate", "num_ranks"), [(2, 1), (1, 2)])
def test_a_position_serves_another_number_of_ranks_with_steps_of_as_many_batches(
    text, tokenizers, accumulate, num_ranks
):
    data = ParallelDataModule(text, text, tokenizers, config(), accumulate=accumulate, num_ranks=num_ranks)
    data.load_state_dict({"epoch": 0, "steps": 4, "batches_a_step": 2})
    assert data.resumed.steps == 4
    whole = data.epoch(0)[1]
    assert [list(batch.indices) for update in data.train_dataloader() for batch in update] == whole[8 :: 3 - accumulate]


def test_steps_of_another_number_of_batches_are_refused_in_the_middle_of_an_epoch(text, tokenizers):
    data = ParallelDataModule(text, text, tokenizers, config(), accumulate=2, num_ranks=2)
    with pytest.raises(ValueError, match=r"stands 4 steps of 2 batches into its epoch .* this run's steps have 4; ch"):
        data.load_state_dict({"epoch": 1, "steps": 4, "batches_a_step": 2})
    data.load_state_dict({"epoch": 1, "steps": 0, "batches_a_step": 2})
    assert data.resumed.epoch == 1


def test_iterating_a_loader_draws_nothing_from_the_global_generator(text, tokenizers):
    data = ParallelDataModule(text, text, tokenizers, config())
    before = torch.get_rng_state()
    next(iter(data.train_dataloader()))
    list(data.val_dataloader())
    assert torch.equal(torch.get_rng_state(), before)


def test_worker_processes_give_the_same_batches(text, tokenizers):
    alone = ParallelDataModule(text, text, tokenizers, config())
    helped = ParallelDataModule(text, text, tokenizers, config(num_workers=2))
    for (one,), (other,) in zip(alone.train_dataloader(), helped.train_dataloader(), strict=True):
        assert one.indices == other.indices
        assert torch.equal(one.src, other.src)
        assert torch.equal(one.tgt_out, other.tgt_out)


def test_the_padding_share_is_small_and_positive(text, tokenizers):
    assert 0 <= ParallelDataModule(text, text, tokenizers, config()).padding_share() < 0.3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_leaves_the_workers_at_work(text, tokenizers, number):
    data = ParallelDataModule(text, text, tokenizers, config(num_workers=1))
    updates = iter(data.train_dataloader())
    seen = [next(updates)]  # the worker has begun by then
    for worker in updates._workers:
        os.kill(worker.pid, number)
    seen.extend(updates)
    assert sorted(i for update in seen for batch in update for i in batch.indices) == list(range(len(text)))
