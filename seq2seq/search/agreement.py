"""Two ways that must lead to the same answers, compared line by line, and what explains a difference."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from typing import TypeVar

import torch

TOLERANCE = 1e-4
"""Of scores in float32, relative to the larger one (absolute below 1): sums in another order differ by less."""

TOLERANCE_FLOAT64 = 1e-9
"""The same of scores in float64."""


class Outcome(Enum):
    """How a comparison came out.

    rounding: lines differ, but by rounding: either both answers have the same score within the tolerance, or in float64
    both ways find the same.
    """

    equal = "equal"
    rounding = "rounding"
    differs = "differs"
    not_applicable = "not applicable"


@dataclass(frozen=True)
class Answer:
    """What one way has found for a line."""

    line: int
    """Counted from 1."""
    text: str
    score: float


Answers = tuple[Sequence[Answer], Sequence[Answer]]
"""Those of both ways, in one order."""


class NotApplicableError(ValueError):
    """Why a comparison cannot be made."""


@dataclass(frozen=True)
class Difference:
    """An answer that two ways do not agree on."""

    answers: tuple[Answer, Answer]

    @property
    def line(self) -> int:
        """Of the input, counted from 1."""
        return self.answers[0].line

    @property
    def gap(self) -> float:
        """Between the scores."""
        first, second = self.answers
        return abs(first.score - second.score)


@dataclass(frozen=True)
class Comparison:
    """How far two ways agree."""

    num_answers: int
    """Of each way: one for each line, or several."""
    differences: Sequence[Difference]
    """Answers with other text or, where scores are compared, another score."""
    largest_gap: float
    """Between the scores of an answer, over all of them."""
    ties: bool
    """Whether the scores of each answer that differs are equal within the tolerance."""

    @property
    def other_scores(self) -> int:
        """Answers with the same text, but another score."""
        return sum(found.answers[0].text == found.answers[1].text for found in self.differences)


def compare(answers: Answers, tolerance: float | None = TOLERANCE) -> Comparison:
    """Where the answers differ.

    Args:
        answers: Of both ways.
        tolerance: Of scores, relative to the larger one, absolute below 1; None compares the text alone.
    """
    differences, gaps = [], [0.0]
    ties = True
    for pair in zip(*answers, strict=True):
        found = Difference(pair)
        gaps.append(found.gap)
        near = found.gap <= (tolerance or 0.0) * max(1.0, *(abs(answer.score) for answer in pair))
        if pair[0].text != pair[1].text or (tolerance is not None and not near):
            differences.append(found)
            ties = ties and near
    return Comparison(len(answers[0]), differences, max(gaps), ties)


@dataclass(frozen=True)
class Check:
    """Two ways to translate, and whether they must agree."""

    name: str
    sides: tuple[str, str]
    """What the ways are called."""
    run: Callable[[], Answers]
    """Goes both ways; a NotApplicableError says why that cannot be."""
    must_agree: bool = True
    """Otherwise a difference is only information, and scores are not compared."""
    precise: Callable[[], Answers | None] = lambda: None
    """The same in float64, to tell rounding from faults; gives None where that cannot be."""
    tolerance: float = TOLERANCE


Ways = TypeVar("Ways")

Way = tuple[str, tuple[str, str], Callable[[Ways], Answers]]
"""Name of a check, names of its sides, and the method that goes both ways."""


def exact_checks(
    ways: Ways, table: Sequence[Way[Ways]], precise: Callable[[], Ways | None], dtype: torch.dtype
) -> list[Check]:
    """The checks of ways that must agree.

    Args:
        ways: What has the methods.
        table: The checks, in their order.
        precise: Makes the same ways in float64; it is called at most once, and gives None where that cannot be.
        dtype: Of the arithmetic of `ways`.
    """
    made = cache(precise)

    def again(way: Callable[[Ways], Answers]) -> Answers | None:
        twin = made()
        return None if twin is None else way(twin)

    tolerance = TOLERANCE_FLOAT64 if dtype is torch.float64 else TOLERANCE
    return [
        Check(name, sides, partial(way, ways), precise=partial(again, way), tolerance=tolerance)
        for name, sides, way in table
    ]


@dataclass(frozen=True)
class Finding:
    """What a check has found."""

    check: Check
    outcome: Outcome
    comparison: Comparison | None
    """None where it was not applicable."""
    note: str
    """Why it was not applicable, or what explains the difference; may be empty."""
    seconds: float

    @property
    def fails(self) -> bool:
        """Whether something is wrong."""
        return self.check.must_agree and self.outcome is Outcome.differs


def examine(check: Check) -> Finding:
    """Make a check; where its ways differ that must agree, see whether it is by rounding."""
    start = time.monotonic()
    try:
        comparison = compare(check.run(), check.tolerance if check.must_agree else None)
    except NotApplicableError as reason:
        return Finding(check, Outcome.not_applicable, None, str(reason), time.monotonic() - start)
    outcome, note = Outcome.equal, ""
    if comparison.differences:
        outcome, note = Outcome.differs, ""
        if check.must_agree:
            outcome, note = _explained(check, comparison)
    return Finding(check, outcome, comparison, note, time.monotonic() - start)


def _explained(check: Check, comparison: Comparison) -> tuple[Outcome, str]:
    """Whether a difference is rounding, and how one knows."""
    if comparison.ties:
        return Outcome.rounding, f"ties: both answers have the same score within {check.tolerance:g}"
    again = check.precise()
    if again is None:
        return Outcome.differs, ""
    precise = compare(again, TOLERANCE_FLOAT64)
    if precise.differences:
        return Outcome.differs, (
            f"not rounding: in float64 {len(precise.differences)} of {precise.num_answers} differ too"
        )
    if comparison.other_scores:
        return Outcome.differs, "in float64 both agree: the arithmetic is coarser here than float32 should be"
    return Outcome.rounding, "choices closer than rounding on the way: in float64 both find the same everywhere"
