from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.search import Rule, SearchLimits
from seq2seq.search.rules import Rows
from seq2seq.search.step import Scores, move_into, next_scores, top_pieces


def slow_top_pieces(log_probs: torch.Tensor, count: int) -> list[list[int]]:
    """Sorts every row in Python, best first, the lower id first among equals."""
    return [sorted(range(len(row)), key=lambda i, row=row: (-row[i], i))[:count] for row in log_probs.tolist()]


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
    assert top_pieces(log_probs, count).tolist() == slow_top_pieces(log_probs, count)


@pytest.mark.parametrize("vocab_size", [11, 1279])
@pytest.mark.parametrize("ties", [False, True])
def test_the_best_piece_is_found_at_every_place_of_the_vocabulary(vocab_size: int, ties: bool) -> None:
    log_probs = torch.full((vocab_size, vocab_size), -9.0)
    if not ties:
        log_probs -= torch.arange(vocab_size)
    log_probs.fill_diagonal_(-1.0)
    ids = top_pieces(log_probs, 2)
    assert ids[:, 0].tolist() == list(range(vocab_size))
    assert ids[:, 1].tolist() == [1] + [0] * (vocab_size - 1)


def test_forbidden_pieces_come_last_and_do_not_count_as_ties() -> None:
    log_probs = torch.full((1, 11), -torch.inf)
    log_probs[0, 7], log_probs[0, 4] = -1.0, -2.0
    ids = top_pieces(log_probs, 4)
    assert ids[0, :2].tolist() == [7, 4]
    assert log_probs[0, ids[0, 2:]].tolist() == [-torch.inf, -torch.inf]


class Nothing:
    """A state of rows that remember nothing."""

    def select(self, rows: torch.Tensor, sentences: torch.Tensor, places: torch.Tensor | None = None) -> "Nothing":
        return self


def scores_of(logits: torch.Tensor, rules: Sequence[Rule] = (), edits: Sequence[Rule] = ()) -> Scores:
    limits = SearchLimits(1, 2, (), [1] * len(logits), [9] * len(logits))
    rows = Rows(torch.arange(len(logits)), torch.empty(len(logits), 0, dtype=torch.long))
    tokens = limits.first_tokens(torch.device("cpu"))
    return next_scores(
        lambda tokens, state: (logits.clone(), state),
        tokens,
        Nothing(),
        rows=rows,
        rules=rules,
        edits=edits,
        limits=limits,
    )[0]


def test_nan_is_refused_wherever_it_stands() -> None:
    log_probs = torch.zeros(2, 1601)
    log_probs[1, 1600] = torch.nan
    with pytest.raises(ValueError, match="log-probabilities are NaN, expected numbers"):
        scores_of(log_probs)


def many(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """More logits than NumPy is given, and more than are exponentiated at once."""
    return torch.randn(300, 1601, generator=torch.Generator().manual_seed(6), dtype=dtype) * 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("first", [0.0, -100.0, 100.0, -1e4])
@pytest.mark.parametrize("other", [0.0, -75.0, -100.0, -700.0, 50.0, 100.0, 1e4])
def test_log_probabilities_are_right_wherever_the_logits_of_a_row_lie(
    dtype: torch.dtype, first: float, other: float
) -> None:
    logits = many(dtype)
    logits[0] += first  # which tells what is tried
    logits[[7, 290]] += other
    logits[8, 5:] = -torch.inf
    pieces = np.arange(300)[:, None] % 5
    expected = logits.double().log_softmax(-1).numpy()[np.arange(300)[:, None], pieces]
    # a number as large as the logits is no nearer to what it stands for
    near = (1e-5 + 2e-7 * max(abs(first), abs(other))) * (1 if dtype is torch.float32 else 1e-8)
    assert scores_of(logits).log_probs(pieces) == pytest.approx(expected, abs=near)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
@pytest.mark.parametrize("row", [0, 170, 299])
def test_nan_and_infinity_are_refused_among_many_rows_too(row: int, broken: float) -> None:
    logits = many()
    logits[row, 1600] = broken
    with pytest.raises(ValueError, match="log-probabilities are NaN, expected numbers"):
        scores_of(logits)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_log_probabilities_are_worked_out_for_the_pieces_that_are_asked_for(dtype: torch.dtype) -> None:
    logits = (torch.randn(3, 11, generator=torch.Generator().manual_seed(4)) * 30).to(dtype)
    expected = logits.double().log_softmax(-1)
    pieces = np.array([[4, 9], [0, 10], [3, 3]])
    found = scores_of(logits)
    assert not found.edited
    assert found.log_probs(pieces) == pytest.approx(expected.gather(1, torch.from_numpy(pieces)).numpy(), abs=1e-5)
    assert (found.own_log_probs(pieces) == found.log_probs(pieces)).all()


def test_rules_forbid_after_the_normalisation_and_edits_change_what_the_search_goes_by() -> None:
    logits = torch.randn(2, 11, generator=torch.Generator().manual_seed(5), dtype=torch.float64)

    def forbid(rows: Rows, values: torch.Tensor) -> None:
        values[:, 3] = -torch.inf

    def halve(rows: Rows, values: torch.Tensor) -> None:
        values.div_(2)

    pieces = np.array([[3, 4], [3, 5]])
    at = torch.from_numpy(pieces)
    ruled = scores_of(logits, rules=[forbid])
    assert ruled.log_probs(pieces)[:, 0].tolist() == [-np.inf, -np.inf]
    assert ruled.log_probs(pieces)[:, 1] == pytest.approx(logits.log_softmax(-1).gather(1, at)[:, 1].numpy())
    edited = scores_of(logits, edits=[halve])
    assert edited.edited
    assert edited.log_probs(pieces) == pytest.approx((logits / 2).log_softmax(-1).gather(1, at).numpy())
    assert edited.own_log_probs(pieces) == pytest.approx(logits.log_softmax(-1).gather(1, at).numpy())


@given(st.lists(st.integers(0, 11), max_size=14))
def test_hypotheses_are_given_rows_so_that_as_many_as_can_stay_where_they_are(parents: list[int]) -> None:
    parents = sorted(parents)
    rows = move_into(np.array(parents, dtype=np.int64), 12).tolist()
    assert sorted(rows) == list(range(len(parents)))
    if len(parents) <= 12:
        stay = sum(row == parent for row, parent in zip(rows, parents, strict=True))
        assert stay == len({parent for parent in parents if parent < len(parents)})
    else:
        assert rows == list(range(len(parents)))
