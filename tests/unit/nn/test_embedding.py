"""seq2seq.nn.embedding: a row look-up, in the original times sqrt(D), plus the position."""

import math

import torch
from torch import nn

from seq2seq.nn.embedding import Embedding
from seq2seq.nn.positions import LearnedPositions, Places, SinusoidalPositions, sinusoids

V, D = 11, 8


def scaled(rows, dropout):
    """The original's: rows times sqrt(D), plus sinusoids."""
    return Embedding(rows, SinusoidalPositions(D), scaled=True, dropout=dropout)


def test_a_vector_is_the_row_times_root_d_plus_the_sinusoid_of_its_position():
    rows = nn.Embedding(V, D).double()
    ids = torch.tensor([[4, 9, 0], [9, 9, 10]])
    expected = torch.stack([torch.stack([rows.weight[i] * math.sqrt(D) for i in sentence]) for sentence in ids])
    expected = expected + sinusoids(6, D)[3:]
    torch.testing.assert_close(scaled(rows, 0.0)(ids, Places.span(3, 6)), expected, atol=1e-12, rtol=0)


def test_the_look_up_is_the_product_with_one_hot_rows():
    rows, ids = nn.Embedding(V, D).double(), torch.tensor([[4, 9, 0]])
    one_hot = nn.functional.one_hot(ids, V).double()
    torch.testing.assert_close(rows(ids), one_hot @ rows.weight)


def test_dropout_is_on_the_sum_and_only_in_training():
    embedding, ids = scaled(nn.Embedding(V, D), 0.5), torch.full((4, 50), 7)
    embedding.train()
    assert (embedding(ids, Places.span(0, 50)) == 0).float().mean().item() > 0.4
    embedding.eval()
    assert (embedding(ids, Places.span(0, 50)) == 0).sum().item() == 0


def test_the_table_is_the_one_given_not_a_copy():
    rows = nn.Embedding(V, D)
    assert scaled(rows, 0.0).rows.weight is rows.weight


def test_without_scale_and_positions_a_vector_is_the_row():
    rows, ids = nn.Embedding(V, D).double(), torch.tensor([[4, 9, 0]])
    assert torch.equal(Embedding(rows, None, scaled=False, dropout=0.0)(ids, Places.span(0, 3)), rows.weight[ids])


def test_learned_positions_are_added_to_the_row():
    rows, learned, ids = nn.Embedding(V, D), LearnedPositions(7, D), torch.tensor([[4, 9, 0], [9, 9, 10]])
    embedding = Embedding(rows, learned, scaled=False, dropout=0.0)
    index = torch.tensor([[3, 4, 5], [0, 0, 1]])
    torch.testing.assert_close(embedding(ids, Places(index, 6)), rows.weight[ids] + learned.table.weight[index])
