"""No n-gram twice, against a slow twin in plain Python."""

import pytest
import torch

from seq2seq.search.repetition import NoRepeatNgram
from seq2seq.search.rules import Rows

V = 5


def forbidden(n: int, ids: torch.Tensor) -> list[list[int]]:
    values = torch.zeros(len(ids), V)
    NoRepeatNgram(n)(Rows(torch.arange(len(ids)), ids), values)
    assert values[values.isfinite()].unique().tolist() in ([0.0], [])
    return [row.isinf().nonzero()[:, 0].tolist() for row in values]


def repeating(n: int, ids: list[int]) -> list[int]:
    """Pieces after which an n-gram would have come twice."""
    found = []
    for piece in range(V):
        grams = [tuple([*ids, piece][at : at + n]) for at in range(len(ids) + 2 - n)]
        if len(ids) + 1 >= n and grams[-1] in grams[:-1]:
            found.append(piece)
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 9, 17])
def test_the_pieces_that_would_repeat_an_n_gram_are_forbidden_and_no_others(n: int, length: int) -> None:
    ids = torch.randint(0, V - 2, (23, length), generator=torch.Generator().manual_seed(n))
    assert forbidden(n, ids) == [repeating(n, row) for row in ids.tolist()]


def test_an_n_gram_may_not_overlap_itself_either() -> None:
    assert forbidden(2, torch.tensor([[3, 3], [3, 1]])) == [[3], []]


def test_what_follows_differently_each_time_may_follow_in_a_third_way_only() -> None:
    assert forbidden(2, torch.tensor([[3, 0, 3, 1, 3]])) == [[0, 1]]


def test_a_sequence_has_at_least_one_piece() -> None:
    with pytest.raises(AssertionError, match="n=0"):
        NoRepeatNgram(0)
