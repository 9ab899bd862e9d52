"""seq2seq.models.ahead: what is compiled, called as Python, against the modules; tests of its states: test_compiled."""

import copy

import pytest
import torch
from torch import nn

from seq2seq.models.ahead import SourceReader, StepInputs, TargetStep, told_by_positions
from seq2seq.models.compilation import reader_example, step_example
from seq2seq.models.compiled import packed_source
from seq2seq.models.decoder_only import DecoderOnly
from seq2seq.nn.positions import Places

V, B, S, E, T = 19, 3, 5, 29, 4
ROWS = [2, 0, 0, 1, 2, 0, 2]
CLOSE = {"rtol": 0, "atol": 1e-10}
ENCODER_DECODERS = ["original", "pre_ln", "modern", "multi_query", "deepnorm", "marian"]
DECODERS = ["gpt2", "llama", "qwen2", "qwen3", "prefix_lm"]


def drawn(*shape):
    return torch.randint(3, V, shape, generator=torch.Generator().manual_seed(sum(shape)))


SRC, VALID = drawn(B, S), torch.arange(S)[None] < torch.tensor([[5], [3], [2]])


def scattered(keys_values):
    """A pool with the keys and values of each row, [N, 2, R, C, G, K], anywhere in it, NaN elsewhere; and where."""
    num_layers, _, rows, length, *kept = keys_values.shape
    entries = torch.randperm(E, generator=torch.Generator().manual_seed(2))[: rows * length].view(rows, length)
    pool = keys_values.new_full((num_layers, 2, E, *kept), torch.nan)
    pool[:, :, entries] = keys_values
    return pool, entries


def past(model, src, valid, fed):
    """Keys and values of all positions that rows have seen, by the modules, [N, 2, R, C, G, K], and the state."""
    _, state = model.step_hidden(fed, model.start(src, valid))
    history = state.history
    return history.cache.buffer[:, :, :, : history.cache.length], state


@pytest.fixture(params=ENCODER_DECODERS)
def pair_model(request, families, scrambled):
    return scrambled(families(request.param))


@pytest.fixture(params=DECODERS)
def single_model(request, families, scrambled):
    return scrambled(families(request.param))


@pytest.mark.parametrize("panel", [None, 16])
@pytest.mark.parametrize("left", [False, True])
def test_the_reader_gives_keys_and_values_of_the_source_in_every_layer(pair_model, left, panel):
    model, valid = pair_model, VALID.flip(1) if left else VALID
    found = SourceReader(model, panel)(*packed_source(model, SRC, valid))
    wanted = model.start(SRC, valid).source
    assert found.shape == wanted.shape
    real = valid[None, None, :, :, None, None].expand_as(wanted)
    torch.testing.assert_close(found[real], wanted[real], **CLOSE)


def test_padding_changes_nothing_that_the_reader_says_of_real_positions(pair_model):
    model, reader = pair_model, SourceReader(pair_model)
    together = reader(*packed_source(model, SRC, VALID))
    alone = reader(*packed_source(model, SRC[1:2, :3], VALID[1:2, :3]))
    torch.testing.assert_close(together[:, :, 1:2, :3], alone, **CLOSE)


@pytest.mark.parametrize("panel", [None, 16])
def test_a_step_is_the_modules_step_for_rows_of_sentences_in_any_order(pair_model, panel):
    model, sentence_at, fed = pair_model, torch.tensor(ROWS), drawn(len(ROWS), T)
    seen, _ = past(model, SRC[sentence_at], VALID[sentence_at], fed)
    pool, entries = scattered(seen)
    source = model.start(SRC, VALID).source
    tokens = drawn(len(ROWS), 1)
    wanted, state = model.step_hidden(tokens, past(model, SRC[sentence_at], VALID[sentence_at], fed)[1])
    given = StepInputs(
        tokens=tokens[:, 0],
        positions=told_by_positions(model.decoder, T + 1)[T : T + 1],
        pool=pool,
        entries=entries,
        seen=torch.empty(0, dtype=torch.bool),
        sentence_at=sentence_at,
        source=source,
        source_valid=VALID,
    )
    hidden, added = TargetStep(model, panel)(*given)
    torch.testing.assert_close(hidden, wanted, **CLOSE)
    torch.testing.assert_close(added, state.history.cache.buffer[:, :, :, T], **CLOSE)


@pytest.mark.parametrize("panel", [None, 16])
def test_a_step_after_a_padded_source_in_a_row_is_the_modules_step(single_model, panel):
    model, sentence_at, fed = single_model, torch.tensor(ROWS[:3]), drawn(3, 1)
    src, valid = SRC[sentence_at], VALID[sentence_at]
    seen, state = past(model, src, valid, fed)
    pool, entries = scattered(seen)
    mask = torch.ones(entries.shape, dtype=torch.bool)
    mask[:, : S - 1] = valid[:, 1:]
    tokens, places = drawn(3, 1), state.next_place[:, 0]
    wanted, state = model.step_hidden(tokens, state)
    none = torch.empty(0, dtype=torch.long)
    given = StepInputs(
        tokens=tokens[:, 0],
        positions=told_by_positions(model.decoder, int(places.max()) + 1)[places],
        pool=pool,
        entries=entries,
        seen=mask,
        sentence_at=none,
        source=pool.new_empty(0),
        source_valid=none.bool(),
    )
    hidden, added = TargetStep(model, panel)(*given)
    torch.testing.assert_close(hidden, wanted, **CLOSE)
    torch.testing.assert_close(added, state.history.cache.buffer[:, :, :, S], **CLOSE)


def test_what_a_stack_is_told_of_positions_is_what_it_adds_or_turns_by(family_model):
    stack, places = family_model.decoder, Places.span(0, 7)
    told = told_by_positions(stack, 7)[:7]
    weight = stack.embedding.rows.weight
    assert told.dtype is weight.dtype
    x = torch.randn(1, 7, weight.shape[1], dtype=torch.float64)
    if stack.rotary is not None:
        turned = stack.rotation(places, x)
        cos, sin = told.chunk(2, dim=1)
        torch.testing.assert_close(cos, turned.cos.flatten(0, -2), **CLOSE)
        torch.testing.assert_close(sin, turned.sin.flatten(0, -2), **CLOSE)
    else:
        torch.testing.assert_close(stack.embedding.positions(x, places) - x, told[None], **CLOSE)


def test_a_learned_table_that_is_too_short_is_refused(families, scrambled):
    model = scrambled(families("multi_query", max_positions=9))
    assert len(told_by_positions(model.decoder, 9)) == 9
    with pytest.raises(ValueError, match="a sequence of 10 pieces was asked for, but this model has learned positions"):
        told_by_positions(model.decoder, 10)


def test_what_is_compiled_is_a_copy_without_gradients_and_without_plain_matrices(family_model):
    model = family_model.train().requires_grad_(True)
    before = copy.deepcopy(model.state_dict())
    modules = [TargetStep(model)] + ([] if isinstance(model, DecoderOnly) else [SourceReader(model)])
    for module in modules:
        for parameter in module.parameters():
            assert not parameter.requires_grad
            parameter.data.zero_()
        assert not any(type(part) is nn.Linear for part in module.modules())
    assert model.training
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_what_is_compiled_drops_nothing_though_the_model_is_in_training(families, scrambled):
    model = scrambled(families("original", dropout=0.5))
    example = step_example(model)._replace(tokens=drawn(28))
    source = packed_source(model, SRC, VALID)
    plain = TargetStep(model)(*example), SourceReader(model)(*source)
    model.train()
    assert torch.equal(TargetStep(model)(*example)[0], plain[0][0])
    assert torch.equal(SourceReader(model)(*source), plain[1])


def test_the_examples_that_code_is_compiled_for_are_inputs_of_a_step(family_model):
    given = step_example(family_model)
    hidden, added = TargetStep(family_model)(*given)
    assert hidden.shape == (len(given.tokens), family_model.output.shape[1])
    assert added.shape == (*given.pool.shape[:2], len(given.tokens), *given.pool.shape[3:])
    assert not hidden.isnan().any()


def test_the_example_that_the_reader_is_compiled_for_has_sources_of_several_lengths(pair_model):
    given = reader_example(pair_model)
    assert len(given.pieces) < given.valid.numel()
    assert SourceReader(pair_model)(*given).shape[2:4] == given.valid.shape
