"""seq2seq.nn.pool: keys and values that hypotheses read by number, against plain lists."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.nn.cache import BLOCK
from seq2seq.nn.pool import Pool, PooledState

N, G, K, B, S = 2, 3, 4, 5, 7


def entries_of(numbers):
    """An entry for each number, which it holds in all its places, in another layer with another sign, [N, 2, R, G, K].

    Values are half as large as keys.
    """
    signs = torch.tensor([[1.0, 0.5], [-1.0, -0.5]], dtype=torch.float64)
    return (signs[:, :, None] * torch.tensor(numbers, dtype=torch.float64))[..., None, None].repeat(1, 1, 1, G, K)


def empty_state(sentences=B, *, seen=None, next_place=None):
    """The state of an encoder-decoder before the first piece."""
    source = torch.randn(N, 2, sentences, S, G, K, dtype=torch.float64)
    return PooledState(
        pool=Pool(source.new_empty(N, 2, 0, G, K)),
        entries=np.empty((sentences, 0), dtype=np.int64),
        seen=seen,
        length=0,
        next_place=next_place,
        sentence_at=np.arange(sentences),
        source=source,
        source_valid=torch.ones(sentences, S, dtype=torch.bool),
    )


def stepped(state, numbers):
    return state.with_room().after(entries_of(numbers))


def read(state):
    """The numbers of each row's entries, in order, when keys and values of both layers agree about them."""
    found = state.pool.buffer[:, :, torch.from_numpy(state.entries)]
    numbers = found[0, 0, :, :, 0, 0]
    assert torch.equal(found, entries_of(numbers.flatten().tolist()).view(found.shape))
    return numbers.int().tolist()


def test_what_is_put_into_a_pool_comes_back_and_uses_up_its_room():
    pool = Pool(torch.full((N, 2, 5, G, K), torch.nan, dtype=torch.float64))
    first, second = torch.randn(2, N, 2, 2, G, K, dtype=torch.float64)
    pool = pool.put(first).put(second)
    assert (pool.used, pool.room) == (4, 5)
    assert torch.equal(pool.buffer[:, :, :4], torch.cat([first, second], 2))
    assert pool.buffer[:, :, 4].isnan().all()


def test_a_pool_of_some_entries_has_them_in_the_order_that_was_asked_for():
    pool = Pool(torch.zeros(N, 2, 6, G, K, dtype=torch.float64)).put(entries_of([11, 12, 13, 14]))
    fewer = pool.only(torch.tensor([3, 0, 2]), 8)
    assert (fewer.used, fewer.room) == (3, 8)
    assert torch.equal(fewer.buffer[:, :, :3], entries_of([14, 11, 13]))
    assert torch.equal(pool.buffer[:, :, :4], entries_of([11, 12, 13, 14]))


def test_room_is_made_for_whole_blocks_of_steps_at_a_time():
    state, buffers = empty_state(), []
    for step in range(2 * BLOCK + 1):
        state = stepped(state, [10 * step + row for row in range(B)])
        if not buffers or state.pool.buffer is not buffers[-1]:
            buffers.append(state.pool.buffer)
    assert [buffer.shape[2] for buffer in buffers] == [B * BLOCK, 2 * B * BLOCK, 3 * B * BLOCK]
    assert state.length == 2 * BLOCK + 1
    assert read(state) == [[10 * step + row for step in range(2 * BLOCK + 1)] for row in range(B)]


def test_while_there_is_room_nothing_is_copied():
    state = stepped(empty_state(), list(range(B)))
    assert state.with_room() is state
    assert stepped(state, list(range(B))).pool.buffer is state.pool.buffer


def test_entries_that_nobody_sees_are_dropped_when_the_pool_is_full():
    state, lists = empty_state(2), [[], []]
    for step in range(BLOCK):
        state = stepped(state, [2 * step, 2 * step + 1])
        state = state.select(torch.tensor([1, 1]), torch.arange(2))
        lists = [[*lists[1], 2 * step + 1]] * 2
    assert (state.pool.used, state.pool.room) == (2 * BLOCK, 2 * BLOCK)
    state = state.with_room()
    assert (state.pool.used, state.pool.room) == (BLOCK, BLOCK + 2 * BLOCK)
    assert read(state) == lists


def test_selecting_moves_numbers_and_neither_entries_nor_the_source():
    seen = np.array([[True, True], [False, True], [True, False], [True, True], [False, False]])
    state = empty_state(next_place=np.array([[2], [1], [1], [2], [0]]))
    state = stepped(stepped(state, [1, 2, 3, 4, 5]), [6, 7, 8, 9, 10])
    state = PooledState(**(vars(state) | {"seen": seen}))
    rows = torch.tensor([4, 1, 1])
    chosen = state.select(rows, torch.tensor([1, 4]), torch.tensor([1, 0, 0]))
    assert chosen.pool is state.pool
    assert chosen.source is state.source
    assert chosen.source_valid is state.source_valid
    assert read(chosen) == [[5, 10], [2, 7], [2, 7]]
    assert chosen.seen.tolist() == [[False, False], [False, True], [False, True]]
    assert chosen.next_place.tolist() == [[2], [3], [3]]
    assert chosen.sentence_at.tolist() == [4, 1, 1]
    assert chosen.length == 2


def test_a_step_counts_on_for_each_row_and_sees_what_it_adds():
    state = empty_state(2, seen=np.empty((2, 0), dtype=bool), next_place=np.array([[3], [0]]))
    state = stepped(state, [1, 2])
    assert (state.length, state.next_place.tolist(), state.seen.tolist()) == (1, [[4], [1]], [[True], [True]])
    plain = stepped(empty_state(2), [1, 2])
    assert (plain.length, plain.next_place, plain.seen) == (1, None, None)


def test_its_bytes_are_those_of_the_pool_and_of_the_source():
    state = empty_state()
    source = N * 2 * B * S * G * K * 8
    assert state.num_bytes() == source
    state = stepped(state, list(range(B)))
    assert state.num_bytes() == source + N * 2 * B * BLOCK * G * K * 8


def test_attention_cannot_be_watched():
    state = empty_state()
    assert state.attended is None
    with pytest.raises(ValueError, match="compiled code does not show the attention that a coverage penalty goes by"):
        state.watch(0, None)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_every_row_reads_its_own_past_and_nothing_else(data):
    """Rows in any order and number, with pools that are thinned out when full."""
    counter = itertools.count(1)
    state, pasts, sentences = empty_state(3), [[], [], []], [0, 1, 2]
    for _ in range(data.draw(st.integers(1, 6))):
        for _ in range(data.draw(st.integers(1, BLOCK + 3))):
            numbers = [next(counter) for _ in pasts]
            state = stepped(state, numbers)
            pasts = [[*past, number] for past, number in zip(pasts, numbers, strict=True)]
        rows = data.draw(st.lists(st.integers(0, len(pasts) - 1), min_size=1, max_size=6))
        state = state.select(torch.tensor(rows), torch.arange(3))
        pasts, sentences = [pasts[row] for row in rows], [sentences[row] for row in rows]
        assert read(state) == pasts
        assert state.sentence_at.tolist() == sentences
        assert state.length == len(pasts[0])
        assert state.pool.used <= state.pool.room
        thinned = state.with_room()
        assert read(thinned) == pasts
        if thinned is not state:
            assert thinned.pool.used == len({number for past in pasts for number in past})
