"""seq2seq.nn.cache: buffers that grow in blocks, and a decoder state whose parts follow the hypotheses together."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.nn.cache import BLOCK, Cache, CausalState, DecoderState, KeyValue, Layout

N, R, H, K = 2, 6, 3, 4


def new(length, rows=R):
    return torch.randn(rows, H, length, K, dtype=torch.float64)


def filled(length, rows=R):
    cache = Cache(N, rows)
    for layer in range(N):
        cache = cache.put(layer, new(length, rows), new(length, rows))
    return cache.advance(length)


def content(cache, end=None):
    """[N, 2, R, H, length, K], as a copy."""
    seen = [cache.seen(layer, end or cache.length) for layer in range(N)]
    return torch.stack([torch.stack([layer.key, layer.value]) for layer in seen])


def test_what_is_written_piece_by_piece_is_read_back_whole():
    written, cache = [], Cache(N, R)
    for length in (1, 5, 1, BLOCK, 1, 2 * BLOCK + 3, 1):
        parts = torch.randn(N, 2, R, H, length, K, dtype=torch.float64)
        for layer in range(N):
            cache = cache.put(layer, parts[layer, 0], parts[layer, 1])
        cache = cache.advance(length)
        written.append(parts)
    assert torch.equal(content(cache), torch.cat(written, dim=4))


def test_room_is_made_a_whole_block_at_a_time():
    cache, buffers = Cache(N, R), set()
    for at in range(3 * BLOCK):
        for layer in range(N):
            cache = cache.put(layer, new(1), new(1))
        cache = cache.advance(1)
        assert cache.buffer.shape == (N, 2, R, H, (at // BLOCK + 1) * BLOCK, K)
        buffers.add(cache.buffer.data_ptr())
    assert len(buffers) == 3


def test_the_part_in_use_is_a_view_not_a_copy():
    cache = filled(3)
    assert cache.seen(0, 2).key.data_ptr() == cache.buffer.data_ptr()


def test_an_empty_cache_takes_heads_and_precision_from_its_model():
    cache = Cache(N, R)
    assert (cache.num_bytes(), cache.buffer) == (0, None)
    like = torch.zeros(R, H, 5, K, dtype=torch.bfloat16)
    cache = cache.put(0, like, like)
    assert cache.buffer.shape == (N, 2, R, H, BLOCK, K)
    assert cache.buffer.dtype is torch.bfloat16


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, R - 1), min_size=1, max_size=2 * R), st.sampled_from([1, 3, BLOCK]))
def test_selected_rows_are_those_asked_for_whether_they_move_within_the_buffer_or_not(rows, length):
    cache = filled(length)
    expected = content(cache)[:, :, rows]
    chosen = cache.select(torch.tensor(rows))
    assert chosen.rows == len(rows)
    assert torch.equal(content(chosen), expected)
    grown = chosen
    for layer in range(N):
        grown = grown.put(layer, new(1, len(rows)), new(1, len(rows)))
    assert torch.equal(content(grown.advance(1), length), expected)


def test_rows_that_stay_are_not_copied_and_few_that_move_are_written_into_the_same_buffer():
    cache = filled(3)
    assert cache.select(torch.arange(R)).buffer is cache.buffer
    assert cache.select(torch.tensor([0, 1, 5, 3, 4])).buffer is cache.buffer
    assert cache.select(torch.tensor([1, 0, 5, 2, 4])).buffer is not cache.buffer


def test_positions_that_old_and_new_rows_share_are_not_moved():
    cache = filled(5)
    before = content(cache)
    same = np.array([True, True, False, True, True, True])
    chosen = cache.select(torch.tensor([1, 1, 5, 3, 4, 5]), shared=2, same=same)
    found = content(chosen)
    assert torch.equal(found[:, :, 0, :, :2], before[:, :, 0, :, :2])
    assert torch.equal(found[:, :, 0, :, 2:], before[:, :, 1, :, 2:])
    assert torch.equal(found[:, :, 2], before[:, :, 5])


@pytest.fixture
def state():
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], dtype=torch.bool)[:, None, None]
    cross = tuple(KeyValue(new(5, rows=3), new(5, rows=3)) for _ in range(N))
    return DecoderState(filled(3), cross, mask)


def test_selecting_moves_every_part_of_the_state_in_one_call(state):
    rows, sentences = torch.tensor([1, 0, 0, 5, 5, 4]), torch.tensor([0, 2])
    before, cross = content(state.cache), state.cross_attention
    chosen = state.select(rows, sentences)
    assert (chosen.length, chosen.layout, chosen.places) == (3, None, None)
    assert torch.equal(content(chosen.cache), before[:, :, rows])
    for old, layer in zip(cross, chosen.cross_attention, strict=True):
        assert torch.equal(layer.key, old.key[sentences])
        assert torch.equal(layer.value, old.value[sentences])
    assert torch.equal(chosen.cross_mask, state.cross_mask[sentences])


def test_while_all_sentences_go_on_the_sources_keys_are_not_copied(state):
    chosen = state.select(torch.tensor([1, 0, 2, 3, 5, 5]), torch.arange(3))
    assert chosen.cross_attention is state.cross_attention
    assert chosen.cross_mask is state.cross_mask


def test_sources_of_few_finished_sentences_are_kept_and_passed_over():
    mask = torch.ones(9, 1, 1, 5, dtype=torch.bool)
    cross = tuple(KeyValue(new(5, rows=9), new(5, rows=9)) for _ in range(N))
    state = DecoderState(filled(3, rows=9), cross, mask)
    going = torch.tensor([0, 1, 2, 3, 5, 6, 7, 8])
    chosen = state.select(going, going, torch.arange(8))
    assert chosen.cross_attention is cross
    assert chosen.places.tolist() == going.tolist()
    assert chosen.layout.place_of.tolist() == going.tolist()
    again = torch.tensor([0, 2, 4, 5])
    fewer = chosen.select(again, again, torch.arange(4))
    assert (fewer.places, fewer.layout) == (None, None)
    assert torch.equal(fewer.cross_attention[1].value, cross[1].value[[0, 2, 5, 6]])


def test_the_state_knows_its_bytes(state):
    target, source = 2 * N * R * H * BLOCK * K, 2 * N * 3 * H * 5 * K
    assert state.num_bytes() == (target + source) * 8


@given(st.lists(st.integers(0, 4), min_size=1, max_size=14))
def test_a_layout_puts_the_rows_of_a_sentence_side_by_side(sentences):
    layout = Layout.of(np.array(sentences), 5, torch.device("cpu"))
    counts = [sentences.count(sentence) for sentence in range(5)]
    if layout is None:
        assert sentences == sorted(sentences)
        assert len(set(counts)) == 1
        return
    assert layout.width == max(counts)
    assert layout.row_at[layout.place_of].tolist() == list(range(len(sentences)))
    assert (layout.place_of // layout.width).tolist() == sentences
    assert len(layout.row_at) == 5 * layout.width


@pytest.fixture
def causal():
    torch.manual_seed(1)
    valid = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 0, 1], [0, 0, 0], [0, 1, 1], [1, 1, 0]], dtype=torch.bool)
    return CausalState(filled(3), valid, valid.sum(1, keepdim=True), 0, torch.tensor([0, 0, 0, 1, 1, 1]))


def test_selecting_moves_every_part_of_a_causal_state_in_one_call(causal):
    rows, before = torch.tensor([1, 5, 5, 0]), content(causal.cache)
    chosen = causal.select(rows, torch.tensor([0, 1]))
    assert chosen.length == 3
    assert torch.equal(content(chosen.cache), before[:, :, rows])
    assert torch.equal(chosen.valid, causal.valid[rows])
    assert chosen.next_place.tolist() == [[2], [2], [2], [3]]
    assert chosen.places.tolist() == [0, 0, 1, 1]


def test_only_what_follows_the_source_moves_between_rows_of_one_sentence(causal):
    before = content(causal.cache)
    causal = CausalState(causal.cache, causal.valid, causal.next_place, 2, causal.places)
    chosen = causal.select(torch.tensor([0, 0, 2, 3, 4]), torch.tensor([0, 1]), torch.tensor([0, 0, 0, 1, 1]))
    found = content(chosen.cache)
    assert torch.equal(found[:, :, 1, :, :2], before[:, :, 1, :, :2])
    assert torch.equal(found[:, :, 1, :, 2:], before[:, :, 0, :, 2:])


def test_a_causal_state_knows_its_bytes_and_is_selected_before_anything_was_read(causal):
    assert causal.num_bytes() == 2 * N * R * H * BLOCK * K * 8
    nothing = torch.zeros(2, 0, dtype=torch.bool)
    empty = CausalState(Cache(N, 2), nothing, torch.zeros(2, 1, dtype=torch.long), 0, torch.arange(2))
    chosen = empty.select(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1]))
    assert chosen.valid.shape == (4, 0)
    assert chosen.next_place.tolist() == [[0]] * 4
    assert (chosen.num_bytes(), chosen.cache.rows) == (0, 4)
