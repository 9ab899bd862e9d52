"""Decoding by compiled steps against the modules: the steps are called as the Python that is compiled."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.models.ahead import SourceReader, TargetStep
from seq2seq.models.compiled import CompiledSteps, packed_source
from seq2seq.models.decoder_only import DecoderOnly
from seq2seq.models.native_function import NativeFunction
from seq2seq.search import LengthPenalty, SearchLimits, greedy
from seq2seq.search.beam import beam_search

BOS, EOS, V, B, S, W = 1, 2, 19, 4, 6, 3
CLOSE = {"rtol": 0, "atol": 1e-10}


class Uncompiled(NativeFunction):
    """Stands in the place of a library."""

    def __init__(self, module):
        self.module = module

    def __call__(self, *tensors):
        found = self.module(*tensors)
        return list(found) if isinstance(found, tuple) else [found]


def compiled(model):
    """What the model would decode by, uncompiled."""
    reader = None if isinstance(model, DecoderOnly) else Uncompiled(SourceReader(model))
    return CompiledSteps(model, Uncompiled(TargetStep(model)), reader)


def sources(left=False):
    """Sources of 6, 4, 2 and 1 pieces, EOS included, padded on the right or on the left."""
    src = torch.randint(3, V, (B, S), generator=torch.Generator().manual_seed(6))
    lengths = torch.tensor([6, 4, 2, 1])[:, None]
    place = torch.arange(S)[None]
    valid = place >= S - lengths if left else place < lengths
    src[valid & (place == (S - 1 if left else lengths - 1))] = EOS
    return src.masked_fill(~valid, 0), valid


def expected(model, src, valid, fed, sentence_at):
    """Logits after the last piece of each row, of a forward pass over all of them."""
    return model(src[sentence_at], valid[sentence_at], torch.tensor(fed))[:, -1]


@pytest.mark.parametrize("left", [False, True])
def test_beams_that_widen_are_ranked_anew_and_lose_sentences_are_those_of_the_modules(family_model, left):
    model, (src, valid) = family_model, sources(left)
    model.compiled = compiled(model)
    state, sentence_at, fed = model.start(src, valid), torch.arange(B), [[] for _ in range(B)]
    draw = torch.Generator().manual_seed(8)
    selections = {
        0: ([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3], [0, 1, 2, 3], None),
        2: ([2, 10, 1, 0, 9, 5, 9], [0, 1, 3], [0, 2, 0, 0, 2, 1, 2]),
        4: ([6, 6, 0, 3], [0, 2], [1, 1, 0, 0]),
    }
    for step in range(7):
        tokens = torch.randint(3, V, (len(fed), 1), generator=draw)
        fed = [[*row, token] for row, token in zip(fed, tokens.flatten().tolist(), strict=True)]
        logits, state = model.step(tokens, state)
        torch.testing.assert_close(logits, expected(model, src, valid, fed, sentence_at), **CLOSE)
        if step in selections:
            rows, sentences, places = selections[step]
            chosen = torch.tensor(rows)
            state = state.select(chosen, torch.tensor(sentences), None if places is None else torch.tensor(places))
            sentence_at, fed = sentence_at[chosen], [fed[row] for row in rows]


@pytest.mark.parametrize("name", ["modern", "prefix_lm"])
def test_rows_of_sentences_in_any_order_and_number_are_those_of_the_modules(families, scrambled, name):
    model, (src, valid) = scrambled(families(name)), sources()
    model.compiled = compiled(model)

    @settings(deadline=None, max_examples=12)
    @given(st.data())
    def check(data):
        state, sentence_at, fed = model.start(src, valid), torch.arange(B), [[] for _ in range(B)]
        for _ in range(data.draw(st.integers(1, 4))):
            drawn = st.integers(3, V - 1)
            tokens = data.draw(st.lists(drawn, min_size=len(fed), max_size=len(fed)))
            fed = [[*row, token] for row, token in zip(fed, tokens, strict=True)]
            logits, state = model.step(torch.tensor(tokens)[:, None], state)
            torch.testing.assert_close(logits, expected(model, src, valid, fed, sentence_at), **CLOSE)
            rows = data.draw(st.lists(st.integers(0, len(fed) - 1), min_size=1, max_size=9))
            sentence_at, fed = sentence_at[rows], [fed[row] for row in rows]
            going = sentence_at.unique()
            state = state.select(torch.tensor(rows), going, torch.searchsorted(going, sentence_at))

    check()


def test_a_source_that_is_all_padding_is_read_as_well(families, scrambled):
    model = scrambled(families("original"))
    src, valid = torch.tensor([[4, 5], [6, 0], [0, 0]]), torch.tensor([[True, True], [True, False], [False, False]])
    given = packed_source(model, src, valid)
    assert given.pieces.tolist() == [4, 5, 6]
    assert int(given.piece_at.max()) < 3
    wanted = model.start(src, valid).source
    (found,) = Uncompiled(SourceReader(model))(*given)
    torch.testing.assert_close(found[:, :, :2, :1], wanted[:, :, :2, :1], **CLOSE)
    torch.testing.assert_close(found[:, :, 0, 1], wanted[:, :, 0, 1], **CLOSE)


def limits():
    return SearchLimits(BOS, EOS, (0, BOS), [1, 2, 1, 3], [9, 12, 4, 10], [[], [5, 7], [], [EOS + 1]])


def hypotheses(model, beam_size, left):
    model.eval()
    state, penalty = model.start(*sources(left)), LengthPenalty()
    if beam_size == 1:
        return [[one] for one in greedy(model.step, state, limits(), penalty=penalty, device="cpu")]
    return beam_search(
        model.step, state, limits(), beam_size=beam_size, n_best=beam_size, penalty=penalty, device="cpu"
    )


@pytest.mark.parametrize("beam_size", [1, W])
def test_greedy_and_beam_search_find_the_hypotheses_that_the_modules_find(family_model, beam_size):
    model, left = family_model, beam_size == W
    wanted = hypotheses(model, beam_size, left)
    model.compiled = compiled(model)
    found = hypotheses(model, beam_size, left)
    assert [[one.ids for one in own] for own in found] == [[one.ids for one in own] for own in wanted]
    scores = [[one.score for one in own] for own in wanted]
    assert [[one.score for one in own] for own in found] == [pytest.approx(own, abs=1e-9) for own in scores]


def test_several_samples_of_a_sentence_go_their_own_ways(families, scrambled):
    model, (src, valid) = scrambled(families("original")), sources()
    model.compiled = compiled(model)
    rows = torch.arange(B).repeat_interleave(2)
    state = model.start(src, valid).select(rows, rows)
    fed = [[BOS, 3 + row] for row in range(2 * B)]
    for step in range(2):
        logits, state = model.step(torch.tensor(fed)[:, step : step + 1], state)
    torch.testing.assert_close(logits, expected(model, src, valid, fed, rows), **CLOSE)


@pytest.mark.parametrize("name", ["modern", "llama"])
def test_many_more_steps_than_a_block_are_those_of_the_modules(families, scrambled, name):
    model, (src, valid) = scrambled(families(name)), sources()
    fed = torch.randint(3, V, (B, 70), generator=torch.Generator().manual_seed(3))
    wanted = model(src, valid, fed)
    model.compiled = compiled(model)
    state = model.start(src, valid)
    for step in range(fed.shape[1]):
        logits, state = model.step(fed[:, step : step + 1], state)
        torch.testing.assert_close(logits, wanted[:, step], **CLOSE)
        # what nobody sees comes and goes
        state = state.select(torch.tensor([0, 1, 2, 3]), torch.arange(B))
    assert state.length == 70 + (S - 1 if isinstance(model, DecoderOnly) else 0)


@pytest.mark.parametrize("name", ["gpt2", "prefix_lm", "qwen3"])
def test_a_decoder_only_model_begins_without_a_source_where_there_is_none(families, scrambled, name):
    model = scrambled(families(name))
    src, valid = torch.tensor([[EOS]] * 3), torch.ones(3, 1, dtype=torch.bool)
    fed = torch.tensor([[BOS, 5, 9], [BOS, 4, 4], [BOS, 17, 3]])
    wanted = model(src, valid, fed)
    model.compiled = compiled(model)
    state = model.start(src, valid)
    assert state.length == 0
    for step in range(3):
        logits, state = model.step(fed[:, step : step + 1], state)
        torch.testing.assert_close(logits, wanted[:, step], **CLOSE)


@pytest.mark.parametrize("name", ["multi_query", "gpt2"])
def test_positions_beyond_a_learned_table_are_refused(families, scrambled, name):
    model = scrambled(families(name, max_positions=9))
    model.compiled = compiled(model)
    state = model.start(torch.tensor([[5, EOS]]), torch.ones(1, 2, dtype=torch.bool))
    for _ in range(9 - state.length):
        _, state = model.step(torch.tensor([[5]]), state)
    with pytest.raises(ValueError, match="a sequence of 10 pieces was asked for"):
        model.step(torch.tensor([[5]]), state)


def test_a_row_has_as_many_learned_positions_as_it_needs_whatever_the_padding_beside_it(families, scrambled):
    model = scrambled(families("gpt2", max_positions=9))
    src, valid = (
        torch.tensor([[5, 6, 7, 8, 9, EOS], [5, EOS, 0, 0, 0, 0]]),
        torch.tensor([[True] * 6, [True] * 2 + [False] * 4]),
    )
    model.compiled = compiled(model)
    fed = torch.tensor([[BOS, 5, 9, 4, 7, 3, 8, 5]])
    wanted = model(src[1:, :2], valid[1:, :2], fed)
    logits, state = model.step(torch.full((2, 1), BOS), model.start(src, valid))
    state = state.select(torch.tensor([1]), torch.tensor([1]))
    for step in range(1, 8):
        logits, state = model.step(fed[:, step : step + 1], state)
        torch.testing.assert_close(logits, wanted[:, step], **CLOSE)
    assert state.length == 5 + 8, "padding counts there, but is no position"


def test_a_source_beyond_a_learned_table_is_refused(families, scrambled):
    model = scrambled(families("multi_query", max_positions=9))
    model.compiled = compiled(model)
    with pytest.raises(ValueError, match="a sequence of 10 pieces was asked for"):
        model.start(torch.full((1, 10), 5), torch.ones(1, 10, dtype=torch.bool))


def test_a_model_without_compiled_steps_decodes_by_its_modules(families, scrambled):
    model, (src, valid) = scrambled(families("original")), sources()
    plain = model.start(src, valid)
    model.compiled = compiled(model)
    # a search that began with the modules' state ends with it
    logits, _ = model.step(torch.full((B, 1), BOS), plain)
    torch.testing.assert_close(logits, expected(model, src, valid, [[BOS]] * B, torch.arange(B)), **CLOSE)
