from collections.abc import Sequence

import pytest
import torch

from seq2seq.search.agreement import (
    Answer,
    Answers,
    Check,
    NotApplicableError,
    Outcome,
    compare,
    exact_checks,
    examine,
)


def rows(*found: tuple[str, float]) -> list[Answer]:
    return [Answer(line, text, score) for line, (text, score) in enumerate(found, start=1)]


ONE = rows(("a", -1.0), ("b", -2.0), ("c", -30.0))
OTHER_TEXT = rows(("a", -1.0), ("x", -2.5), ("c", -30.0))
OTHER_SCORE = rows(("a", -1.0), ("b", -2.0), ("c", -30.1))
TIE = rows(("a", -1.0), ("x", -2.00001), ("c", -30.0))


def check(second: Sequence[Answer], precise: Answers | None = None, must_agree: bool = True) -> Check:
    return Check("name", ("one", "two"), lambda: (ONE, second), must_agree, lambda: precise)


def test_other_text_and_other_scores_are_told_with_their_line_and_the_largest_gap():
    found = compare((ONE, OTHER_TEXT))
    assert [difference.line for difference in found.differences] == [2]
    assert (found.num_answers, found.largest_gap, found.ties) == (3, 0.5, False)
    found = compare((ONE, OTHER_SCORE))
    assert [difference.line for difference in found.differences] == [3]
    assert (found.other_scores, found.ties) == (1, False)


def test_scores_within_the_tolerance_relative_above_1_and_absolute_below_are_equal():
    near = rows(("a", -1.000095), ("b", -2.00019), ("c", -30.0029))
    assert not compare((ONE, near), 1e-4).differences
    assert len(compare((ONE, near), 9e-5).differences) == 3
    assert not compare((rows(("a", 0.0)), rows(("a", -9e-5))), 1e-4).differences


def test_without_a_tolerance_the_text_alone_is_compared():
    assert not compare((ONE, OTHER_SCORE), None).differences
    assert len(compare((ONE, OTHER_TEXT), None).differences) == 1


def test_equal_answers_are_equal():
    finding = examine(check(ONE))
    assert (finding.outcome, finding.note, finding.fails) == (Outcome.equal, "", False)


def test_other_text_of_the_same_score_is_a_tie():
    finding = examine(check(TIE))
    assert (finding.outcome, finding.fails) == (Outcome.rounding, False)
    assert finding.note.startswith("ties: both answers have the same score within 0.0001")


def test_a_difference_that_is_gone_in_float64_is_rounding():
    finding = examine(check(OTHER_TEXT, precise=(ONE, ONE)))
    assert (finding.outcome, finding.fails) == (Outcome.rounding, False)
    assert "in float64 both find the same" in finding.note


def test_a_difference_that_is_there_in_float64_too_is_a_fault():
    finding = examine(check(OTHER_TEXT, precise=(ONE, OTHER_TEXT)))
    assert (finding.outcome, finding.fails) == (Outcome.differs, True)
    assert "in float64 1 of 3 differ too" in finding.note


def test_another_score_of_the_same_text_is_a_fault_even_where_float64_has_none():
    finding = examine(check(OTHER_SCORE, precise=(ONE, ONE)))
    assert (finding.outcome, finding.fails) == (Outcome.differs, True)
    assert "coarser here than float32 should be" in finding.note


def test_without_float64_a_difference_is_a_fault():
    finding = examine(check(OTHER_TEXT))
    assert (finding.outcome, finding.note, finding.fails) == (Outcome.differs, "", True)


def test_a_difference_that_may_be_is_no_fault_and_not_looked_into():
    finding = examine(check(OTHER_TEXT, precise=(ONE, ONE), must_agree=False))
    assert (finding.outcome, finding.note, finding.fails) == (Outcome.differs, "", False)


def test_why_a_check_cannot_be_made_is_noted():
    def run() -> Answers:
        raise NotApplicableError("no such engine")

    finding = examine(Check("name", ("one", "two"), run))
    assert (finding.outcome, finding.comparison, finding.note) == (Outcome.not_applicable, None, "no such engine")
    assert not finding.fails


class Faulty:
    """Ways that differ, in float64 as well if `deep`."""

    def __init__(self, deep: bool) -> None:
        self.deep = deep

    def go(self) -> Answers:
        return ONE, OTHER_TEXT if self.deep else ONE


def test_checks_of_a_table_look_into_differences_with_one_twin_in_float64():
    made = []

    def precise() -> Faulty:
        made.append(1)
        return Faulty(deep=False)

    table = [("first", ("one", "two"), Faulty.go), ("second", ("one", "two"), Faulty.go)]
    checks = exact_checks(Faulty(deep=True), table, precise, torch.float32)
    assert not made
    assert [examine(one).outcome for one in checks] == [Outcome.rounding, Outcome.rounding]
    assert len(made) == 1


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-9)])
def test_the_tolerance_is_that_of_the_arithmetic(dtype, tolerance):
    (only,) = exact_checks(Faulty(True), [("first", ("one", "two"), Faulty.go)], lambda: None, dtype)
    assert only.tolerance == tolerance
    assert examine(only).fails
