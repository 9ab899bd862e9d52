"""Packed blocks: every piece once, no document cut that fits, the same order for the same seed and epoch."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from seq2seq.corpus.text_blocks import EncodedText, PackedText, Part, epoch_blocks, pack
from seq2seq.text.special import SpecialIds

SPECIAL = SpecialIds()
BOS, EOS, PAD = SPECIAL.bos, SPECIAL.eos, SPECIAL.pad
LENGTHS = [3, 30, 1, 7, 0, 12, 5, 5, 11, 2, 41, 6]


def text(lengths=LENGTHS) -> EncodedText:
    """Documents without a piece in common, so that each piece says where it stands."""
    first, documents = 10, []
    for length in lengths:
        documents.append(list(range(first, first + length)))
        first += length
    return EncodedText(documents, SPECIAL)


def predictions(packed: PackedText, num_blocks: int = 3) -> list[tuple[int, int]]:
    """What each counted place reads and predicts, over the whole epoch."""
    found = []
    for indices in packed.batches(num_blocks):
        batch = packed[indices]
        assert batch.num_target_tokens == batch.counted.sum()
        found += zip(batch.ids[batch.counted].tolist(), batch.targets[batch.counted].tolist(), strict=True)
    return found


def expected(encoded: EncodedText) -> list[tuple[int, int]]:
    """Each piece but BOS, and the one before it."""
    return [(one, two) for one, two in pairwise(encoded.ids.tolist()) if two != BOS]


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("length", [2, 8, 64, 1000])
def test_every_piece_but_bos_is_predicted_exactly_once_an_epoch(apart, length):
    encoded = text()
    for epoch in range(3):
        found = predictions(epoch_blocks(encoded, length, apart=apart, seed=1, epoch=epoch))
        assert Counter(found) == Counter(expected(encoded))
        assert len(found) == encoded.num_predicted == sum(LENGTHS) + len(LENGTHS)
    assert Counter(predictions(epoch_blocks(encoded, length, apart=apart, shuffle=False))) == Counter(found)


def test_read_on_and_on_the_next_documents_bos_is_read_but_not_counted():
    batch = epoch_blocks(text([2, 1]), 100, apart=False, shuffle=False)[[0]]
    assert batch.ids.tolist() == [[BOS, 10, 11, EOS, BOS, 12]]
    assert batch.targets.tolist() == [[10, 11, EOS, BOS, 12, EOS]]
    assert batch.counted.tolist() == [[True, True, True, False, True, True]]
    assert batch.documents is None
    assert (batch.num_target_tokens, batch.num_padding, batch.num_positions) == (5, 0, 6)


def test_apart_a_document_that_fits_is_never_cut_and_no_block_is_longer_than_said():
    encoded = text()
    for epoch in range(4):
        packed = epoch_blocks(encoded, 13, apart=True, seed=1, epoch=epoch)
        parts = {(part.begin, part.length) for block in packed.blocks for part in block}
        for begin, length in zip(encoded.begins.tolist(), LENGTHS, strict=True):
            assert ((begin, length + 1) in parts) == (length + 1 <= 13)
        assert all(sum(part.length for part in block) <= 13 for block in packed.blocks)


def test_documents_in_a_block_are_numbered_and_padding_is_numbered_apart():
    packed = PackedText(text([2, 1, 4]), [[Part(0, 3), Part(4, 2)], [Part(7, 5), Part(7, 2)], [Part(0, 1)]])
    batch = packed[[0, 1, 2]]
    assert batch.ids.tolist() == [
        [BOS, 10, 11, BOS, 12, PAD, PAD],
        [BOS, 13, 14, 15, 16, BOS, 13],
        [BOS, PAD, PAD, PAD, PAD, PAD, PAD],
    ]
    assert batch.documents.tolist() == [[0, 0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 0, 1, 1], [0, 1, 1, 1, 1, 1, 1]]
    assert batch.targets.tolist()[0] == [10, 11, EOS, 12, EOS, PAD, PAD]
    assert batch.counted.tolist()[0] == [True] * 5 + [False] * 2
    assert (batch.num_padding, batch.indices) == (8, (0, 1, 2))
    assert packed[[2]].documents is None  # one part, and padding that causality hides
    assert packed[[2]].ids.shape == (1, 1)


def test_a_batch_moves_to_a_device_whole():
    packed = epoch_blocks(text(), 16, apart=True)
    moved = packed[[0, 1]].to("meta")
    assert {moved.ids.device.type, moved.targets.device.type, moved.counted.device.type} == {"meta"}
    assert moved.documents.device.type == "meta"
    assert epoch_blocks(text(), 16, apart=False)[[0]].to("cpu").documents is None


@pytest.mark.parametrize("apart", [True, False])
def test_cuts_and_order_depend_on_seed_and_epoch_alone(apart):
    encoded = text([300, 200])
    blocks = [
        epoch_blocks(encoded, 16, apart=apart, seed=seed, epoch=epoch).blocks for seed in (1, 2) for epoch in (0, 1)
    ]
    again = epoch_blocks(text([300, 200]), 16, apart=apart, seed=2, epoch=1).blocks
    assert again == blocks[3]
    assert all(one != other for one, other in pairwise(blocks))
    cuts = {tuple(sorted(part.begin % 16 for block in found for part in block)) for found in blocks}
    assert len(cuts) > 1  # not the same blocks in another order
    ordered = [part for block in epoch_blocks(encoded, 16, apart=False, shuffle=False).blocks for part in block]
    assert [part.begin for part in ordered] == list(range(0, len(encoded.ids) - 1, 16))


def test_the_first_cut_of_a_long_document_falls_on_every_place():
    encoded = text([300])
    rngs = [np.random.default_rng(seed) for seed in range(200)]
    assert {encoded.parts(8, apart=True, rng=rng)[0].length for rng in rngs} == set(range(1, 9))


def test_best_fit_leaves_no_block_that_two_others_room_could_have_spared():
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, 41, size=3000).tolist()
    blocks = pack(lengths, 64)
    assert sorted(index for block in blocks for index in block) == list(range(3000))
    sums = [sum(lengths[i] for i in block) for block in blocks]
    assert max(sums) <= 64
    assert len(blocks) <= math.ceil(sum(lengths) / 64) + 2


def test_best_fit_takes_the_block_with_the_least_room():
    assert pack([6, 7, 3, 4, 10], 10) == [[4], [1, 2], [0, 3]]
    assert pack([], 10) == []


def test_padding_is_little_and_counted_as_the_batches_have_it():
    packed = epoch_blocks(text([5, 6, 7] * 40), 32, apart=True)
    batches = [packed[indices] for indices in packed.batches(4)]
    share = sum(batch.num_padding for batch in batches) / sum(batch.num_positions for batch in batches)
    assert packed.padding_share(4) == pytest.approx(share)
    assert 0 < share < 0.08


def test_batches_hold_so_many_blocks_and_the_last_one_the_rest():
    packed = epoch_blocks(text([70]), 8, apart=True, shuffle=False)
    assert packed.batches(4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]


def test_ids_are_what_embeddings_take():
    batch = epoch_blocks(text(), 8, apart=True)[[0, 1]]
    assert batch.ids.dtype == batch.targets.dtype == batch.documents.dtype == torch.long


def test_stretches_are_spread_over_the_text_and_stay_within_a_document():
    encoded = text([4, 1, 3])  # BOS 10 11 12 13 EOS  BOS 14 EOS  BOS 15 16 17 EOS
    assert encoded.stretches(3, 2) == [[BOS, 10, 11], [14]]
    assert encoded.stretches(100, 3) == [[BOS, 10, 11, 12, 13], [13], [BOS, 15, 16, 17]]
    every = [[BOS, 10], [10, 11], [11, 12], [12, 13], [13], [BOS, 14], [14], [BOS, 15], [15, 16], [16, 17], [17]]
    assert encoded.stretches(2, 100) == every
    assert encoded.stretches(3, 0) == []
