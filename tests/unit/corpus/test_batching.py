"""Token batches: every pair once, the budget kept, the order a function of (seed, epoch)."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.corpus.batching import (
    EncodedPairs,
    UpdateSampler,
    make_batch,
    padding_share,
    token_batches,
)
from seq2seq.text.special import SpecialIds

SOURCE = [3, 30, 7, 1, 12, 9, 9, 2, 18, 5, 25, 4, 11]
TARGET = [4, 25, 7, 2, 10, 9, 8, 3, 20, 6, 30, 1, 13]


@pytest.mark.parametrize("budget", [30, 50, 200])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_pair_is_in_exactly_one_batch_within_the_budget(budget, shuffle):
    batches = token_batches(SOURCE, TARGET, budget, seed=3, epoch=1, shuffle=shuffle)
    assert sorted(i for batch in batches for i in batch) == list(range(len(SOURCE)))
    for batch in batches:
        assert len(batch) * max(max(SOURCE[i], TARGET[i]) for i in batch) <= budget


def test_the_order_depends_on_seed_and_epoch_and_on_nothing_else():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 20, 200).tolist()
    first = token_batches(lengths, lengths, 60, seed=1, epoch=2)
    np.random.random(10)
    torch.rand(10)
    assert token_batches(lengths, lengths, 60, seed=1, epoch=2) == first
    assert token_batches(lengths, lengths, 60, seed=1, epoch=3) != first
    assert token_batches(lengths, lengths, 60, seed=2, epoch=2) != first


def test_bucketing_by_length_leaves_little_padding():
    rng = np.random.default_rng(0)
    source, target = rng.integers(1, 60, 3000).tolist(), rng.integers(1, 60, 3000).tolist()
    similar = [max(1, length + int(noise)) for length, noise in zip(source, rng.integers(-2, 3, 3000), strict=True)]
    bucketed = padding_share(source, similar, token_batches(source, similar, 512, seed=1))
    unsorted = padding_share(source, similar, [list(range(i, min(i + 16, 3000))) for i in range(0, 3000, 16)])
    assert bucketed < 0.1 < unsorted
    assert padding_share([1, 3], [2, 2], [[0, 1]]) == pytest.approx(1 - 8 / 10)
    assert target  # the second side was drawn apart, so that the test does not depend on equal sides


def test_a_pair_beyond_the_budget_is_refused():
    with pytest.raises(ValueError, match=r"pair 1 has 31 pieces, more than the batch budget of 30"):
        token_batches([3, 31], [4, 5], 30)


def test_a_batch_is_shifted_by_one_and_padded_on_the_right():
    special = SpecialIds(pad=0, bos=1, eos=2, unk=3)
    batch = make_batch([[5, 6, 2], [7, 2]], [[8, 2], [9, 10, 11, 2]], special, special, indices=(4, 7))
    assert batch.src.tolist() == [[5, 6, 2], [7, 2, 0]]
    assert batch.src_valid.tolist() == [[True, True, True], [True, True, False]]
    assert batch.tgt_in.tolist() == [[1, 8, 0, 0], [1, 9, 10, 11]]
    assert batch.tgt_out.tolist() == [[8, 2, 0, 0], [9, 10, 11, 2]]
    assert batch.tgt_valid.sum().item() == batch.num_target_tokens == 6
    assert (batch.num_padding, batch.num_positions, batch.indices) == (1 + 2, 6 + 8, (4, 7))


def test_validity_comes_from_lengths_and_not_from_the_ids():
    # an id equal to the padding id inside a sentence would be real
    special = SpecialIds(pad=5, bos=1, eos=2, unk=3)
    batch = make_batch([[5, 2]], [[5, 5, 2]], special, special)
    assert bool(batch.src_valid.all())
    assert bool(batch.tgt_valid.all())


def test_an_encoded_corpus_closes_both_sides_with_eos():
    special = SpecialIds()
    pairs = EncodedPairs([[5, 6], [7]], [[8], [9, 10, 11]], special, special)
    assert (len(pairs), pairs.source_lengths, pairs.target_lengths) == (2, [3, 2], [2, 4])
    batch = pairs[[1, 0]]
    assert batch.src.tolist() == [[7, 2, 0], [5, 6, 2]]
    assert batch.tgt_out.tolist() == [[9, 10, 11, 2], [8, 2, 0, 0]]


def test_updates_hold_the_accumulated_batches_and_skip_what_was_done():
    sampler = UpdateSampler([[1], [2], [3], [4], [5]], accumulate=2)
    assert list(sampler) == [[[1], [2]], [[3], [4]], [[5]]]
    resumed = UpdateSampler([[1], [2], [3], [4], [5]], accumulate=2, start=1)
    assert list(resumed) == [[[3], [4]], [[5]]]
    assert len(resumed) == len(sampler) == 3


@given(
    num_batches=st.integers(0, 40),
    accumulate=st.integers(1, 4),
    num_ranks=st.integers(1, 5),
    start=st.integers(0, 3),
)
def test_ranks_share_the_batches_of_each_step_and_keep_step(num_batches, accumulate, num_ranks, start):
    batches = [[7 * number, 7 * number + 1] for number in range(num_batches)]
    joined = list(UpdateSampler(batches, accumulate * num_ranks, start))
    samplers = [UpdateSampler(batches, accumulate, start, rank, num_ranks) for rank in range(num_ranks)]
    assert {len(sampler) for sampler in samplers} == {len(UpdateSampler(batches, accumulate * num_ranks))}
    for step, shares in zip(joined, zip(*samplers, strict=True), strict=True):
        (num_here,) = {len(own) for own in shares}
        assert num_here <= accumulate
        dealt = [own[turn] for turn in range(num_here) for own in shares]
        assert dealt == step + [[]] * (num_here * num_ranks - len(step))


def test_pairs_that_are_not_there_make_a_batch_that_counts_for_nothing():
    source, target = SpecialIds(pad=0, bos=1, eos=2, unk=3), SpecialIds(pad=9, bos=8, eos=7, unk=6)
    batch = EncodedPairs([[5]], [[6]], source, target)[[]]
    assert (batch.num_target_tokens, batch.num_source_predictions, batch.indices) == (0, 0, ())
    assert batch.src.tolist() == [[2, 2]] * 2
    assert (batch.tgt_in.tolist(), batch.tgt_out.tolist()) == ([[8, 7]] * 2, [[7, 7]] * 2)
    assert bool(batch.src_valid.all() and batch.tgt_valid.all())
    assert batch.to("cpu") is not batch
