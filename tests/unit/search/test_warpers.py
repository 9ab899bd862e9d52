"""What each warper leaves of a row. The numbers are worked out by hand; the parity tests compare with transformers."""

import math

import pytest
import torch

from seq2seq.search import MinP, RepetitionPenalty, Temperature, TopK, TopP
from seq2seq.search.rules import Rows
from seq2seq.search.warpers import PiecePenalty

PROBABILITIES = [0.05, 0.4, 0.1, 0.3, 0.15]


def rows(ids: list[list[int]]) -> Rows:
    return Rows(torch.arange(len(ids)), torch.tensor(ids, dtype=torch.long).view(len(ids), -1))


def left(warper: TopK | TopP | MinP, probabilities: list[float]) -> list[int]:
    log_probs = torch.tensor([probabilities], dtype=torch.float64).log()
    before = log_probs.clone()
    warper(rows([[]]), log_probs)
    kept = log_probs.isfinite()
    assert torch.equal(log_probs[kept], before[kept])
    return kept[0].nonzero()[:, 0].tolist()


@pytest.mark.parametrize(
    ("k", "expected"), [(1, [1]), (2, [1, 3]), (4, [1, 2, 3, 4]), (5, [0, 1, 2, 3, 4]), (9, [0, 1, 2, 3, 4])]
)
def test_top_k_leaves_the_k_best(k: int, expected: list[int]) -> None:
    assert left(TopK(k), PROBABILITIES) == expected


def test_top_k_leaves_all_that_are_as_good_as_the_last() -> None:
    assert left(TopK(2), [0.4, 0.2, 0.2, 0.2]) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("p", "expected"), [(0.01, [1]), (0.39, [1]), (0.41, [1, 3]), (0.69, [1, 3]), (0.86, [1, 2, 3, 4])]
)
def test_top_p_leaves_the_smallest_set_that_has_the_probability(p: float, expected: list[int]) -> None:
    assert left(TopP(p), PROBABILITIES) == expected


def test_top_p_leaves_the_best_piece_however_small_p_is() -> None:
    assert left(TopP(1e-30), PROBABILITIES) == [1]


def test_top_p_counts_what_other_rules_have_left() -> None:
    """Of 0.4, 0.3 and 0.1 the first has half."""
    assert left(TopP(0.49), [0.0, 0.4, 0.1, 0.3, 0.0]) == [1]
    assert left(TopP(0.51), [0.0, 0.4, 0.1, 0.3, 0.0]) == [1, 3]


@pytest.mark.parametrize(("p", "expected"), [(0.2, [1, 2, 3, 4]), (0.3, [1, 3, 4]), (0.7, [1, 3]), (0.8, [1])])
def test_min_p_leaves_what_is_not_too_improbable_beside_the_best(p: float, expected: list[int]) -> None:
    assert left(MinP(p), PROBABILITIES) == expected


def test_temperature_makes_probabilities_powers() -> None:
    log_probs = torch.tensor([PROBABILITIES], dtype=torch.float64).log()
    Temperature(0.5)(rows([[]]), log_probs)
    squares = [value**2 for value in PROBABILITIES]
    torch.testing.assert_close(log_probs.softmax(-1)[0].tolist(), [value / sum(squares) for value in squares])


def test_the_repetition_penalty_counts_prompt_and_hypothesis_once_each_and_by_the_sign() -> None:
    logits = torch.tensor([[2.0, -1.0, 4.0, 0.0, 3.0, -2.0]] * 2, dtype=torch.float64)
    edit = RepetitionPenalty(2.0, [[0, 1, 0], [5]])
    edit(rows([[2, 2], [3, 1]]), logits)
    assert logits.tolist() == [[1.0, -2.0, 2.0, 0.0, 3.0, -2.0], [2.0, -2.0, 4.0, 0.0, 3.0, -4.0]]


def test_the_repetition_penalty_goes_by_the_sentence_of_a_row_and_leaves_forbidden_pieces_forbidden() -> None:
    logits = torch.tensor([[2.0, 3.0, -math.inf]] * 3, dtype=torch.float64)
    beams = Rows(torch.tensor([0, 1, 1]), torch.empty(3, 0, dtype=torch.long))
    RepetitionPenalty(4.0, [[0], [1, 2]])(beams, logits)
    assert logits.tolist() == [[0.5, 3.0, -math.inf], [2.0, 0.75, -math.inf], [2.0, 0.75, -math.inf]]


def test_the_repetition_penalty_without_prompts_counts_the_hypothesis_alone() -> None:
    logits = torch.tensor([[2.0, -1.0, 4.0]] * 2, dtype=torch.float64)
    edit = RepetitionPenalty(2.0)
    edit(rows([[], []]), logits)
    assert logits.tolist() == [[2.0, -1.0, 4.0]] * 2
    edit(rows([[2, 2], [1, 0]]), logits)
    assert logits.tolist() == [[2.0, -1.0, 2.0], [1.0, -2.0, 4.0]]


def test_of_several_prompts_none_is_empty() -> None:
    with pytest.raises(AssertionError, match="every prompt has a piece"):
        RepetitionPenalty(2.0, [[0], []])


def test_the_penalty_of_a_piece_is_taken_off_its_logit_in_every_row() -> None:
    logits = torch.tensor([[2.0, -1.0, 4.0], [0.0, -torch.inf, 1.0]], dtype=torch.float64)
    PiecePenalty(1, 3.5)(rows([[], []]), logits)
    assert logits.tolist() == [[2.0, -4.5, 4.0], [0.0, -torch.inf, 1.0]]
