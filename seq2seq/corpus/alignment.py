"""Where two files that should be parallel fall out of step."""

import math
import re
import statistics
import unicodedata
from collections import Counter, deque
from collections.abc import Sequence

MAX_OFFSET = 8
"""Surplus lines that are followed one by one; of more only the first eight."""
_BREAK_COST = 4.0
"""How much better (nats, roughly) a shifted reading must fit before it is believed."""
_SETTLED = 60.0
"""A shifted reading that leads by so much is final; the rest of the files need not be read."""
_LENGTH_WEIGHT = 1.5
_ANCHOR_WEIGHT = 3.0
_ANCHOR = re.compile(r"\d+|[^\W\d_]{2,}|[?!.:;()\"]")
_ENDINGS = str.maketrans({"。": ".", "，": ",", "、": ","})

_Profile = tuple[float, Counter[str]]
"""Log-length of a line and the tokens that a translation often keeps: numbers, marks, names."""


def first_shifted_line(source: Sequence[str], target: Sequence[str]) -> int | None:
    """Number (from 1) of the first line at which the sides look out of step, or None if only their ends differ.

    The longer file must have lines that the shorter one lacks. Each way of passing over them is a path of offsets that
    never falls; a pair fits well when its lengths are in the usual ratio and its numbers, punctuation and names agree.
    The best path is found by dynamic programming, O(lines * surplus), as in sentence alignment.

    Source:
        Gale and Church (1993), "A program for aligning sentences in bilingual corpora", Computational Linguistics
        19(1), for lengths and dynamic programming. Deviations: characters are compared by the logarithm of the ratio,
        words common to both sides count too, and lines can only be missing from one side.
    """
    assert len(source) != len(target)
    short, long = (source, target) if len(source) < len(target) else (target, source)
    surplus = len(long) - len(short)
    typical = statistics.median(map(_log_length, long)) - statistics.median(map(_log_length, short))
    # best[o]: fit of the best path so far that is now o lines ahead in the longer file; left[o]: where it left 0.
    offsets = range(min(surplus, MAX_OFFSET) + 1)
    best = [0.0] + [-_BREAK_COST * offset for offset in offsets[1:]]
    left = [len(short)] + [0] * (len(offsets) - 1)
    window = deque(map(_profile, long[: len(offsets) - 1]))
    for place, line in enumerate(short):
        profile = _profile(line)
        window.append(_profile(long[place + len(offsets) - 1]))
        for offset in reversed(offsets[1:]):
            for lower in range(offset):
                reached = best[lower] - _BREAK_COST * (offset - lower)
                if reached > best[offset]:
                    best[offset] = reached
                    left[offset] = place if lower == 0 else left[lower]
        for offset, candidate in enumerate(window):
            best[offset] += _fit(profile, candidate, typical)
        window.popleft()
        if max(best) - best[0] > _SETTLED:
            break
    winner = max(offsets, key=best.__getitem__)
    return None if winner == 0 else left[winner] + 1


def _log_length(line: str) -> float:
    return math.log(len(line) + 1)


def _profile(line: str) -> _Profile:
    normal = unicodedata.normalize("NFKC", line).translate(_ENDINGS).lower()
    return _log_length(line), Counter(_ANCHOR.findall(normal))


def _fit(left: _Profile, right: _Profile, typical: float) -> float:
    """How well two lines fit as translations of one another: 0 or less for lengths, up to `_ANCHOR_WEIGHT` more."""
    (left_length, left_anchors), (right_length, right_anchors) = left, right
    fit = -_LENGTH_WEIGHT * min(abs(right_length - left_length - typical), 2.0)
    total = left_anchors.total() + right_anchors.total()
    if total:
        fit += _ANCHOR_WEIGHT * 2 * (left_anchors & right_anchors).total() / total
    return fit
