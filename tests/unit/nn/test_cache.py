"""seq2seq.nn.cache: pools that grow in blocks, and states whose parts follow the hypotheses together."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.nn.cache import BLOCK, Cache, CausalState, DecoderState, History, Layout

N, B, G, K = 2, 3, 5, 4
CPU = torch.device("cpu")


def new(length, sentences=B):
    return torch.randn(sentences, length, G, K, dtype=torch.float64)


def extended(cache, length):
    """The cache with so many entries more, and what was written, [N, 2, B, length, G, K]."""
    parts = torch.randn(N, 2, cache.num_sentences, length, G, K, dtype=torch.float64)
    for layer in range(N):
        cache = cache.put(layer, parts[layer, 0], parts[layer, 1])
    return Cache(N, cache.num_sentences, cache.length + length, cache.buffer), parts


def filled(length, sentences=B):
    return extended(Cache(N, sentences), length)[0]


def content(cache):
    """[N, 2, B, C, G, K], as a copy."""
    seen = [cache.seen(layer, cache.length) for layer in range(N)]
    return torch.stack([torch.stack([layer.key, layer.value]) for layer in seen]).transpose(3, 4)


def test_what_is_written_piece_by_piece_is_read_back_whole():
    written, cache = [], Cache(N, B)
    for length in (1, 5, 1, BLOCK, 1, 2 * BLOCK + 3, 1):
        cache, parts = extended(cache, length)
        written.append(parts)
    assert torch.equal(content(cache), torch.cat(written, dim=3))


def test_room_is_made_a_whole_block_at_a_time():
    cache, buffers = Cache(N, B), set()
    for at in range(3 * BLOCK):
        cache, _ = extended(cache, 1)
        assert cache.buffer.shape == (N, 2, B, (at // BLOCK + 1) * BLOCK, G, K)
        buffers.add(cache.buffer.data_ptr())
    assert len(buffers) == 3


def test_the_part_in_use_is_a_view_not_a_copy():
    cache = filled(3)
    assert cache.seen(0, 2).key.data_ptr() == cache.buffer.data_ptr()
    assert cache.seen(0, 2).key.shape == (B, G, 2, K)


def test_an_empty_cache_takes_heads_and_precision_from_its_model():
    cache = Cache(N, B)
    assert (cache.num_bytes(), cache.buffer, cache.room) == (0, None, 0)
    like = torch.zeros(B, 5, G, K, dtype=torch.bfloat16)
    cache = cache.put(0, like, like)
    assert cache.buffer.shape == (N, 2, B, BLOCK, G, K)
    assert cache.buffer.dtype is torch.bfloat16


def test_pools_are_selected_by_sentence_and_thinned_out_by_entry():
    cache = filled(5)
    before, sentences = content(cache), torch.tensor([2, 0, 2, 1])
    assert torch.equal(content(cache.select(sentences)), before[:, :, sentences])
    entries = torch.tensor([[0, 2, 4], [4, 1, 0], [3, 3, 1]])
    for room in (3, BLOCK):
        thinned = cache.only(entries, room)
        expected = torch.stack([before[:, :, b, entries[b]] for b in range(B)], dim=2)
        assert torch.equal(content(thinned), expected)
        assert (thinned.length, thinned.room) == (3, room)


class Rows:
    """What a history should be: for each row its sentence and the numbers of all positions that it has seen."""

    def __init__(self, sentences, pasts):
        self.sentences, self.pasts = sentences, pasts

    def select(self, rows, going, places):
        return Rows([going[place] for place in places], [self.pasts[row] for row in rows])


def seen_by(history, rows):
    """The numbers that each row of a history sees: every entry holds its own number in all its places."""
    values = history.cache.buffer[0, 0, :, : history.cache.length, 0, 0]
    width = len(rows.pasts) // history.cache.num_sentences if history.layout is None else history.layout.width
    found = []
    for row in range(len(rows.pasts)):
        place = row if history.layout is None else int(history.layout.place_of[row])
        sentence, beam = place // width, place % width
        seen = values[sentence] if history.seen is None else values[sentence][history.seen[sentence, beam]]
        found.append(seen.tolist())
    return found


def step(history, rows, counter):
    """Every row sees one more entry, with a number of its own."""
    history, mask = history.prepare(len(rows.pasts), 1, CPU)
    numbers = [float(next(counter)) for _ in rows.pasts]
    values = torch.tensor(numbers, dtype=torch.float64)[:, None, None, None].expand(-1, 1, G, K)
    if history.layout is not None:
        values = values.index_select(0, history.layout.row_at)
    values = values.reshape(history.cache.num_sentences, -1, G, K)
    cache = history.cache
    for layer in range(N):
        cache = cache.put(layer, values, values)
    pasts = [[*past, number] for past, number in zip(rows.pasts, numbers, strict=True)]
    return history.after(cache, 1, mask), Rows(rows.sentences, pasts)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_every_hypothesis_sees_its_own_past_and_nothing_else(data):
    """Random beams: rows in any order and number, sentences that leave, pools that are thinned out when full."""
    counter, going = iter(range(10**6)), [0, 1, 2, 3]
    history, rows = step(History(Cache(N, 4)), Rows(going, [[] for _ in going]), iter(range(1000, 2000)))
    for _ in range(data.draw(st.integers(1, 12))):
        kept = sorted(data.draw(st.sets(st.integers(0, len(going) - 1), min_size=1)))
        choices = [[row for row, owner in enumerate(rows.sentences) if owner == going[place]] for place in kept]
        picked = []
        for place, choice in enumerate(choices):
            count = data.draw(st.integers(1, 9))
            picked += [(place, data.draw(st.sampled_from(choice))) for _ in range(count)]
        picked = data.draw(st.permutations(picked))
        places, parents = [place for place, _ in picked], [row for _, row in picked]
        new_going = [going[place] for place in kept]
        history, _ = history.select(torch.tensor(parents), torch.tensor(kept), torch.tensor(places), CPU)
        rows, going = rows.select(parents, new_going, places), new_going
        for _ in range(data.draw(st.integers(1, 4))):
            history, rows = step(history, rows, counter)
        assert seen_by(history, rows) == rows.pasts


def test_entries_that_nobody_sees_are_dropped_when_the_pools_are_full():
    counter, first = iter(range(10**6)), torch.zeros(5, dtype=torch.long)
    history, rows = step(History(Cache(N, 1)), Rows([0], [[]]), counter)
    history, _ = history.select(first, torch.tensor([0]), None, CPU)
    rows = rows.select([0] * 5, [0], [0] * 5)
    for _ in range(100):
        history, rows = step(history, rows, counter)
        history, _ = history.select(first, torch.tensor([0]), None, CPU)
        rows = rows.select([0] * 5, [0], [0] * 5)
    assert seen_by(history, rows) == rows.pasts
    assert history.cache.room <= 101 + 5 + BLOCK, "501 entries were written, of which 101 are seen"


@pytest.fixture
def state():
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], dtype=torch.bool)[:, None, None]
    source = torch.randn(N, 2, B, 5, G, K, dtype=torch.float64)
    return DecoderState(History(filled(3)), 3, source, mask)


def test_selecting_moves_every_part_of_the_state_in_one_call(state):
    rows, sentences = torch.tensor([0, 0, 2, 2]), torch.tensor([0, 2])
    before = content(state.history.cache)
    chosen = state.select(rows, sentences)
    assert (chosen.length, chosen.history.layout, chosen.history.places) == (3, None, None)
    assert torch.equal(content(chosen.history.cache), before[:, :, sentences])
    assert chosen.history.seen.shape == (2, 2, 3)
    assert chosen.history.seen.all()
    for number in range(N):
        old, layer = state.of_source(number), chosen.of_source(number)
        assert layer.key.shape == (2, G, 5, K)
        assert torch.equal(layer.key, old.key[sentences])
        assert torch.equal(layer.value, old.value[sentences])
    assert torch.equal(chosen.cross_mask, state.cross_mask[sentences])


def test_while_all_sentences_go_on_neither_pools_nor_sources_are_copied(state):
    chosen = state.select(torch.tensor([1, 0, 2, 2, 1, 1]), torch.arange(3), torch.tensor([1, 0, 2, 2, 1, 1]))
    assert chosen.history.cache.buffer is state.history.cache.buffer
    assert chosen.source is state.source
    assert chosen.cross_mask is state.cross_mask


def test_what_few_finished_sentences_have_is_kept_and_passed_over():
    mask = torch.ones(9, 1, 1, 5, dtype=torch.bool)
    source = torch.randn(N, 2, 9, 5, G, K)
    state = DecoderState(History(filled(3, sentences=9)), 3, source, mask)
    going = torch.tensor([0, 1, 2, 3, 5, 6, 7, 8])
    chosen = state.select(going, going, torch.arange(8))
    assert chosen.source is source
    assert chosen.history.places.tolist() == going.tolist()
    assert chosen.history.layout.place_of.tolist() == going.tolist()
    again = torch.tensor([0, 2, 4, 5])
    fewer = chosen.select(again, again, torch.arange(4))
    assert (fewer.history.places, fewer.history.layout) == (None, None)
    assert torch.equal(fewer.source, source[:, :, [0, 2, 5, 6]])


def test_the_state_knows_its_bytes(state):
    target, source = 2 * N * B * G * BLOCK * K, 2 * N * B * G * 5 * K
    assert state.num_bytes() == (target + source) * 8


@given(st.lists(st.integers(0, 4), min_size=1, max_size=14))
def test_a_layout_puts_the_rows_of_a_sentence_side_by_side(sentences):
    layout = Layout.of(np.array(sentences), 5, CPU)
    counts = [sentences.count(sentence) for sentence in range(5)]
    if layout is None:
        assert sentences == sorted(sentences)
        assert len(set(counts)) == 1
        return
    assert layout.width == max(counts)
    assert layout.row_at[layout.place_of].tolist() == list(range(len(sentences)))
    assert (layout.place_of // layout.width).tolist() == sentences
    assert len(layout.row_at) == 5 * layout.width


def test_hypotheses_of_a_decoder_only_model_share_their_source():
    valid = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 0, 1]], dtype=torch.bool)
    history = History(filled(3), seen=valid[:, None], fixed=3)
    causal = CausalState(history, 3, valid.sum(1, keepdim=True), valid[:, None, None])
    rows = torch.tensor([0, 0, 2, 2])
    chosen = causal.select(rows, torch.tensor([0, 2]))
    assert torch.equal(content(chosen.history.cache), content(history.cache)[:, :, [0, 2]])
    assert torch.equal(chosen.history.seen, valid[[0, 2], None].expand(-1, 2, -1))
    assert chosen.next_place.tolist() == [[3], [3], [1], [1]]
    assert torch.equal(chosen.source_mask, valid[[0, 2]][:, None, None])
    assert causal.num_bytes() == 2 * N * B * G * BLOCK * K * 8


def test_a_causal_state_is_selected_before_anything_was_read():
    nothing = torch.zeros(2, 1, 1, 0, dtype=torch.bool)
    empty = CausalState(History(Cache(N, 2)), 0, torch.zeros(2, 1, dtype=torch.long), nothing)
    chosen = empty.select(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1]))
    assert chosen.next_place.tolist() == [[0]] * 4
    assert (chosen.num_bytes(), chosen.history.seen.shape) == (0, (2, 2, 0))
