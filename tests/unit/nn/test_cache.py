"""seq2seq.nn.cache: buffers that grow in blocks, and a decoder state whose parts follow the hypotheses together."""

import pytest
import torch

from seq2seq.nn.cache import BLOCK, CausalState, DecoderState, KeyValue

R, H, K = 6, 2, 4


def new(length, rows=R):
    return torch.randn(rows, H, length, K, dtype=torch.float64)


def filled(length, rows=R):
    key, value = new(length, rows), new(length, rows)
    return KeyValue.empty(key).write(0, key, value)


def test_what_is_written_piece_by_piece_is_read_back_whole():
    keys, values, cache, at = [], [], None, 0
    for length in (1, 5, 1, BLOCK, 1, 2 * BLOCK + 3, 1):
        key, value = new(length), new(length)
        cache = (cache or KeyValue.empty(key)).write(at, key, value)
        keys.append(key)
        values.append(value)
        at += length
    seen = cache.until(at)
    assert torch.equal(seen.key, torch.cat(keys, dim=2))
    assert torch.equal(seen.value, torch.cat(values, dim=2))


def test_room_is_made_a_whole_block_at_a_time():
    cache = KeyValue.empty(new(1))
    buffers = set()
    for at in range(3 * BLOCK):
        cache = cache.write(at, new(1), new(1))
        assert cache.key.shape == cache.value.shape == (R, H, (at // BLOCK + 1) * BLOCK, K)
        buffers.add(cache.key.data_ptr())
    assert len(buffers) == 3


def test_the_part_in_use_is_a_view_not_a_copy():
    cache = filled(3)
    assert cache.until(2).key.data_ptr() == cache.key.data_ptr()


def test_an_empty_cache_takes_rows_heads_and_precision_from_its_model():
    cache = KeyValue.empty(torch.zeros(R, H, 5, K, dtype=torch.bfloat16))
    assert cache.key.shape == cache.value.shape == (R, H, 0, K)
    assert cache.key.dtype is cache.value.dtype is torch.bfloat16


def test_selected_rows_are_copies_in_the_order_asked_for():
    cache, rows = filled(3), torch.tensor([4, 4, 0])
    chosen = cache.select(rows)
    assert torch.equal(chosen.until(3).key, cache.until(3).key[rows])
    assert torch.equal(chosen.until(3).value, cache.until(3).value[rows])
    chosen.write(0, new(1, rows=3), new(1, rows=3))
    assert not torch.equal(chosen.until(1).key, cache.until(1).key[rows])
    assert not torch.equal(chosen.key[0, :, 0], chosen.key[1, :, 0])


@pytest.fixture
def state():
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], dtype=torch.bool)[:, None, None]
    return DecoderState(3, (filled(3), filled(3)), (filled(5, rows=3), filled(5, rows=3)), mask)


def test_selecting_moves_every_part_of_the_state_in_one_call(state):
    rows, sentences = torch.tensor([1, 0, 0, 5, 5, 4]), torch.tensor([0, 2])
    chosen = state.select(rows, sentences)
    assert chosen.length == 3
    for old, layer in zip(state.self_attention, chosen.self_attention, strict=True):
        assert torch.equal(layer.until(3).key, old.until(3).key[rows])
        assert torch.equal(layer.until(3).value, old.until(3).value[rows])
    for old, layer in zip(state.cross_attention, chosen.cross_attention, strict=True):
        assert torch.equal(layer.until(5).key, old.until(5).key[sentences])
        assert torch.equal(layer.until(5).value, old.until(5).value[sentences])
    assert torch.equal(chosen.cross_mask, state.cross_mask[sentences])


def test_while_all_sentences_go_on_the_sources_keys_are_not_copied(state):
    chosen = state.select(torch.tensor([1, 0, 2, 3, 5, 5]), torch.arange(3))
    assert chosen.cross_attention is state.cross_attention
    assert chosen.cross_mask is state.cross_mask


def test_the_state_knows_its_bytes(state):
    target, source = 2 * 2 * R * H * BLOCK * K, 2 * 2 * 3 * H * BLOCK * K
    assert state.num_bytes() == (target + source) * 8


@pytest.fixture
def causal():
    torch.manual_seed(1)
    valid = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 0, 1], [0, 0, 0], [0, 1, 1], [1, 1, 0]], dtype=torch.bool)
    return CausalState(3, (filled(3), filled(3)), valid, valid.sum(1, keepdim=True))


def test_selecting_moves_every_part_of_a_causal_state_in_one_call(causal):
    rows = torch.tensor([1, 5, 5, 0])
    chosen = causal.select(rows, torch.tensor([0, 2]))
    assert chosen.length == 3
    for old, layer in zip(causal.layers, chosen.layers, strict=True):
        assert torch.equal(layer.until(3).key, old.until(3).key[rows])
        assert torch.equal(layer.until(3).value, old.until(3).value[rows])
    assert torch.equal(chosen.valid, causal.valid[rows])
    assert chosen.next_place.tolist() == [[2], [2], [2], [3]]


def test_a_causal_state_knows_its_bytes_and_is_selected_before_anything_was_read(causal):
    assert causal.num_bytes() == 2 * 2 * R * H * BLOCK * K * 8
    empty = CausalState(0, (), torch.zeros(2, 0, dtype=torch.bool), torch.zeros(2, 1, dtype=torch.long))
    chosen = empty.select(torch.tensor([0, 0, 1]), torch.tensor([0, 1]))
    assert chosen.valid.shape == (3, 0)
    assert chosen.next_place.tolist() == [[0], [0], [0]]
    assert chosen.num_bytes() == 0
