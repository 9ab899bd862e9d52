import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.search.step import top_pieces


def slow_top_pieces(log_probs: torch.Tensor, count: int) -> tuple[list[list[float]], list[list[int]]]:
    """Sorts every row in Python, best first, the lower id first among equals."""
    ids = [sorted(range(len(row)), key=lambda i, row=row: (-row[i], i))[:count] for row in log_probs.tolist()]
    return [[row[i] for i in chosen] for row, chosen in zip(log_probs.tolist(), ids, strict=True)], ids


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    vocab_size=st.sampled_from([1, 2, 5, 11, 640, 1279, 1601]),
    count=st.integers(1, 12),
    decimals=st.sampled_from([None, 0, 1]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_the_top_pieces_are_those_of_a_plain_sort_with_the_lower_id_first_among_equals(
    seed: int, vocab_size: int, count: int, decimals: int | None, dtype: torch.dtype
) -> None:
    log_probs = -torch.rand(3, vocab_size, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 5
    if decimals is not None:
        log_probs = log_probs.round(decimals=decimals)
    values, ids = top_pieces(log_probs, count)
    expected_values, expected_ids = slow_top_pieces(log_probs, count)
    assert ids.tolist() == expected_ids
    assert values.tolist() == expected_values
    assert values.dtype is torch.float64


@pytest.mark.parametrize("vocab_size", [11, 1279])
@pytest.mark.parametrize("ties", [False, True])
def test_the_best_piece_is_found_at_every_place_of_the_vocabulary(vocab_size: int, ties: bool) -> None:
    log_probs = torch.full((vocab_size, vocab_size), -9.0)
    if not ties:
        log_probs -= torch.arange(vocab_size)
    log_probs.fill_diagonal_(-1.0)
    ids = top_pieces(log_probs, 2)[1]
    assert ids[:, 0].tolist() == list(range(vocab_size))
    assert ids[:, 1].tolist() == [1] + [0] * (vocab_size - 1)


def test_forbidden_pieces_come_last_and_do_not_count_as_ties() -> None:
    log_probs = torch.full((1, 11), -torch.inf)
    log_probs[0, 7], log_probs[0, 4] = -1.0, -2.0
    values, ids = top_pieces(log_probs, 4)
    assert ids[0, :2].tolist() == [7, 4]
    assert values[0].tolist() == [-1.0, -2.0, -torch.inf, -torch.inf]


def test_nan_is_refused_wherever_it_stands() -> None:
    log_probs = torch.zeros(2, 1601)
    log_probs[1, 1600] = torch.nan
    with pytest.raises(ValueError, match="log-probabilities are NaN, expected numbers"):
        top_pieces(log_probs, 3)
