"""Vectors in the place of target ids, and a source that is read once for several passes."""

import math

import pytest
import torch

from seq2seq.nn.embedding import Mixture

SRC = torch.tensor([[5, 6, 7, 8, 2], [9, 10, 2, 0, 0]])
VALID = SRC != 0
TGT_IN = torch.tensor([[1, 11, 12], [1, 13, 0]])
TGT_VALID = torch.tensor([[True, True, True], [True, True, False]])
WHERE = torch.tensor([[False, False, True], [False, True, False]])
EXACT = {"atol": 1e-12, "rtol": 0}
NAMES = ["original", "pre_ln", "marian", "gpt2", "llama", "prefix_lm"]


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_the_table_in_the_place_of_ids_are_read_as_these_ids(families, scrambled, name):
    model = scrambled(families(name))
    mixture = Mixture(WHERE, model.target_table.weight[[14, 15]])
    found = model.decode(SRC, VALID, TGT_IN, TGT_VALID, mixture)
    changed = torch.tensor([[1, 11, 14], [1, 15, 0]])
    torch.testing.assert_close(found, model.decode(SRC, VALID, changed, TGT_VALID), **EXACT)
    assert not torch.equal(found, model.decode(SRC, VALID, TGT_IN, TGT_VALID))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left_of_an_id_that_a_vector_stands_in_for(families, scrambled, name):
    model = scrambled(families(name))
    mixture = Mixture(WHERE, torch.randn(2, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    other = TGT_IN.masked_fill(WHERE, 17)
    found = [model.decode(SRC, VALID, ids, TGT_VALID, mixture) for ids in (TGT_IN, other)]
    assert torch.equal(found[0], found[1])


def test_plain_text_too_has_vectors_in_the_place_of_ids(families, scrambled):
    model = scrambled(families("llama"))
    documents = torch.tensor([[0, 0, 1], [0, 0, 0]])
    for apart in (None, documents):
        found = model.read(TGT_IN, apart, Mixture(WHERE, model.target_table.weight[[14, 15]]))
        torch.testing.assert_close(found, model.read(torch.tensor([[1, 11, 14], [1, 15, 0]]), apart), **EXACT)


def test_a_vector_is_scaled_and_given_its_position_as_a_row_is(families, scrambled):
    embedding = scrambled(families("original")).decoder.embedding
    model = scrambled(families("original"))
    assert embedding.scale == math.sqrt(24)
    vectors = torch.randn(2, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rows = model.target_table.weight
    with torch.no_grad():
        rows[[14, 15]] = vectors
    expected = model.decode(SRC, VALID, torch.tensor([[1, 11, 14], [1, 15, 0]]), TGT_VALID)
    torch.testing.assert_close(model.decode(SRC, VALID, TGT_IN, TGT_VALID, Mixture(WHERE, vectors)), expected, **EXACT)


@pytest.mark.parametrize("name", ["original", "pre_ln"])
def test_a_source_read_before_gives_what_reading_it_again_gives(families, scrambled, name):
    model = scrambled(families(name))
    memory = model.read_source(SRC, VALID)
    found = model.decode(SRC, VALID, TGT_IN, TGT_VALID, memory=memory)
    assert torch.equal(found, model.decode(SRC, VALID, TGT_IN, TGT_VALID))
    assert not torch.equal(found, model.decode(SRC, VALID, TGT_IN, TGT_VALID, memory=memory + 1))


def test_a_decoder_only_model_reads_source_and_target_in_a_row_each_time(families, scrambled):
    assert scrambled(families("gpt2")).read_source(SRC, VALID) is None
