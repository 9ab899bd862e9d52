"""The cases of padding, masks, cache and tied weights for every family: B1, B2, B5, B6, B8 and T9. float64, 1e-9."""

import dataclasses
from dataclasses import dataclass

import pytest
import torch

from seq2seq.bundle import load_bundle, save_bundle
from seq2seq.config import Architecture, PenaltyForm, Tying
from seq2seq.models import build_model
from seq2seq.search import LengthPenalty, SearchLimits, beam_search, greedy

V = 19
PAD, BOS, EOS = 0, 1, 2
EXACT = 1e-9
SOURCES = [[5, 9, 4, 7, EOS], [8, EOS], [EOS], [6, 12, 17, EOS]]
PREFIXES = [[7, 3], [], [15, 4], []]


def padded(sources):
    """Sources as a batch, padded on the right."""
    longest = max(map(len, sources))
    src = torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in sources])
    return src, torch.tensor([[place < len(row) for place in range(longest)] for row in sources])


def search(step, state, sources, beam_size, prefixes=None, room=3):
    """The hypotheses of each source, `room` pieces longer than it at most, and nine at most."""
    limits = SearchLimits(
        bos=BOS,
        eos=EOS,
        suppressed=(PAD, BOS),
        min_lengths=[1] * len(sources),
        max_lengths=[min(len(source) + room, 9) for source in sources],
        prefixes=prefixes,
    )
    penalty = LengthPenalty(PenaltyForm.gnmt, 0.6)
    with torch.inference_mode():
        if beam_size == 1:
            return [[best] for best in greedy(step, state, limits, penalty=penalty, device="cpu")]
        return beam_search(step, state, limits, beam_size=beam_size, n_best=beam_size, penalty=penalty, device="cpu")


def cached(model, sources, beam_size, prefixes=None, room=3):
    return search(model.step, model.start(*padded(sources)), sources, beam_size, prefixes, room)


@dataclass
class Everything:
    """A state that holds what was read and nothing that was computed from it."""

    src: torch.Tensor
    valid: torch.Tensor
    tokens: torch.Tensor
    sentences: torch.Tensor
    """Of each row."""

    def select(self, rows, sentences, places=None):
        src, valid = self.src[sentences], self.valid[sentences]
        if places is None:
            places = torch.arange(len(src)).repeat_interleave(len(rows) // len(src))
        return Everything(src, valid, self.tokens[rows], places)


def uncached(model, sources, beam_size, prefixes=None):
    """The same search with one full pass over all of a hypothesis at every step."""

    def step(tokens, state):
        tokens = torch.cat([state.tokens, tokens], dim=1)
        src, valid = state.src[state.sentences], state.valid[state.sentences]
        return model(src, valid, tokens)[:, -1], Everything(state.src, state.valid, tokens, state.sentences)

    nothing = torch.empty(len(sources), 0, dtype=torch.long)
    return search(step, Everything(*padded(sources), nothing, torch.arange(len(sources))), sources, beam_size, prefixes)


@dataclass
class NotReordered:
    """A state that keeps as many rows as it is asked for, but leaves them where they are."""

    state: object
    num_rows: int

    def select(self, rows, sentences, places=None):
        kept = rows if len(rows) > self.num_rows else torch.arange(len(rows))
        return NotReordered(self.state.select(kept, sentences, places), len(rows))


def not_reordered(model, sources, beam_size, room):
    def step(tokens, state):
        logits, after = model.step(tokens, state.state)
        return logits, NotReordered(after, state.num_rows)

    return search(step, NotReordered(model.start(*padded(sources)), len(sources)), sources, beam_size, room=room)


def assert_same(left, right):
    assert len(left) == len(right)
    for some, others in zip(left, right, strict=True):
        assert [one.ids for one in some] == [other.ids for other in others]
        for one, other in zip(some, others, strict=True):
            assert one.score == pytest.approx(other.score, abs=EXACT)
            assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=EXACT)


def test_b1_the_answers_do_not_depend_on_the_batch(family_model):
    alone = [cached(family_model, [source], 4)[0] for source in SOURCES]
    assert len({len(one.ids) for answers in alone for one in answers}) > 2
    assert_same(cached(family_model, SOURCES, 4), alone)
    assert_same(cached(family_model, [SOURCES[i] for i in (3, 1)], 4), [alone[i] for i in (3, 1)])


def test_b2_a_neighbour_changes_nothing_and_scores_are_finite(family_model):
    (alone,) = cached(family_model, SOURCES[:1], 2)
    assert all(-1e6 < one.score < 0 for one in alone)
    for neighbour in ([*range(3, 19), *range(3, 17), EOS], [EOS], SOURCES[0]):
        assert_same(cached(family_model, [SOURCES[0], neighbour], 2)[:1], [alone])


@pytest.mark.parametrize("beam_size", [1, 4])
def test_b5_decoding_with_and_without_a_cache_gives_the_same_with_and_without_a_prefix(family_model, beam_size):
    fast = cached(family_model, SOURCES, beam_size, PREFIXES)
    assert_same(fast, uncached(family_model, SOURCES, beam_size, PREFIXES))
    assert [list(answers[0].ids[: len(given)]) for answers, given in zip(fast, PREFIXES, strict=True)] == PREFIXES


def test_b5_the_logits_of_every_step_are_those_of_the_whole_forward_pass(family_model):
    src, valid = padded(SOURCES)
    tgt_in = torch.randint(3, V, (len(SOURCES), 7), generator=torch.Generator().manual_seed(3))
    whole, state = family_model(src, valid, tgt_in), family_model.start(src, valid)
    for place in range(7):
        logits, state = family_model.step(tgt_in[:, place : place + 1], state)
        torch.testing.assert_close(logits, whole[:, place], rtol=0, atol=EXACT)


def test_b6_a_cache_that_does_not_follow_the_beam_is_found_out(family_model):
    expected = cached(family_model, SOURCES, 3, room=6)
    with pytest.raises(AssertionError):
        assert_same(not_reordered(family_model, SOURCES, 3, room=6), expected)


FULL = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], dtype=torch.bool)
WITH_AN_EMPTY_ROW = FULL.clone().index_fill_(0, torch.tensor([1]), False)
OTHERS = [0, 2]
DTYPES = [torch.float64, torch.bfloat16, torch.float16]


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(2)
    return torch.randint(3, V, (3, 5), generator=generator), torch.randint(3, V, (3, 4), generator=generator)


@pytest.mark.parametrize("dtype", DTYPES)
def test_b8_a_row_of_padding_gives_no_nan_and_leaves_the_others_alone(family_model, batch, dtype):
    (src, tgt_in), model = batch, family_model.to(dtype).train().requires_grad_(True)
    expected, logits = model(src, FULL, tgt_in), model(src, WITH_AN_EMPTY_ROW, tgt_in)
    assert logits.isfinite().all()
    assert torch.equal(logits[OTHERS], expected[OTHERS])
    assert not torch.equal(logits[1], expected[1])
    logits.float().square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@pytest.mark.parametrize("dtype", DTYPES)
def test_b8_a_row_of_padding_in_a_decode_step(family_model, batch, dtype):
    (src, tgt_in), model = batch, family_model.to(dtype)
    with torch.inference_mode():
        states = [model.start(src, valid) for valid in (FULL, WITH_AN_EMPTY_ROW)]
        for pieces in (tgt_in[:, :2], tgt_in[:, 2:3], tgt_in[:, 3:]):
            (expected, states[0]), (logits, states[1]) = (model.step(pieces, state) for state in states)
            assert logits.isfinite().all()
            assert torch.equal(logits[OTHERS], expected[OTHERS])


def tables(model):
    """The matrices that may be one: what ids are looked up in on either side, and what gives logits."""
    stacks = [stack for stack in (getattr(model, "encoder", None), model.decoder) if stack is not None]
    return [*(stack.embedding.rows.weight for stack in stacks), model.output]


def assert_tied(model, tying):
    """Each table once in memory, among the parameters, and in an optimiser."""
    found = tables(model)
    expected = {Tying.three_way: 1, Tying.two_way: len(found) - 1, Tying.none: len(found)}[tying]
    assert len({table.data_ptr() for table in found}) == expected
    assert len({id(table) for table in found}) == expected
    assert (found[-1] is found[-2]) is (tying is not Tying.none)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert sum(any(parameter is table for table in found) for parameter in parameters) == expected
    assert sum(parameter.numel() for parameter in parameters) == model.num_parameters()
    return optimizer


@pytest.mark.parametrize("tying", list(Tying), ids=lambda tying: tying.name)
def test_t9_tied_weights_stay_one_through_a_step_a_change_of_precision_and_a_bundle(
    family, tying, tiny_bundle, tmp_path, batch
):
    if family.architecture is Architecture.decoder_only and tying is Tying.three_way:
        with pytest.raises(ValueError, match="has one embedding, so tying=three_way means nothing"):
            dataclasses.replace(family, tying=tying)
        return
    config, size = dataclasses.replace(family, tying=tying), tiny_bundle.source_tokenizer.vocab_size
    model = build_model(config, size, size)
    optimizer = assert_tied(model, tying)

    before = [table.detach().clone() for table in tables(model)]
    model(batch[0], FULL, batch[1]).square().sum().backward()
    gradients = [table.grad.clone() for table in tables(model)]
    optimizer.step()
    assert_tied(model, tying)
    for table, old, gradient in zip(tables(model), before, gradients, strict=True):
        torch.testing.assert_close(table.detach(), old - 0.5 * gradient)

    for dtype in (torch.bfloat16, torch.float32):
        model = model.to(dtype)
        assert model.output.dtype is dtype
        assert_tied(model, tying)

    save_bundle(dataclasses.replace(tiny_bundle, model=model, model_config=config), tmp_path / "bundle")
    loaded = load_bundle(tmp_path / "bundle").model
    assert_tied(loaded, tying)
    assert loaded.num_parameters() == model.num_parameters()
    for (name, saved), (other_name, read) in zip(model.named_parameters(), loaded.named_parameters(), strict=True):
        assert name == other_name
        assert torch.equal(saved, read), name
