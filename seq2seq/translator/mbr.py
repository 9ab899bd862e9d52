"""Minimum Bayes risk: of the translations found take those that the others resemble most, not the most probable."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from seq2seq.shapes import Float
from seq2seq.translator.results import Candidate
from seq2seq.translator.utility import Measure


def by_utility(candidates: Sequence[Candidate], measure: Measure, *, drawn: bool) -> list[Candidate]:
    """The distinct candidates in the order of their expected utility, which each is given; the highest first.

    The utility of a candidate is how much it is like a translation, with that one as the reference, on average over
    all candidates, itself among them: an estimate of what it would be on average over all that the model might say.
    Of equally useful candidates the one that was found first goes first.

    Source:
        Candidates that a search found count by the exponential of their scores, renormalised over them: Kumar and Byrne
        2004, "Minimum Bayes-Risk Decoding for Statistical Machine Translation". As there, the score is what the search
        went by, here with the length penalty: the model's bare probabilities would favour short candidates again.
        Candidates that were drawn count alike, each as often as it was drawn: Eikema and Aziz 2020, arXiv:2005.10283.

    Args:
        candidates: Of one sentence; drawn ones with those that came several times as often as they came.
        measure: Tells how much one text is like another. Where the papers have a loss, this is what it is less than.
        drawn: Whether they were drawn.
    """
    distinct: dict[str, int] = {}
    for place, candidate in enumerate(candidates):
        distinct.setdefault(candidate.text, place)
    texts = list(distinct)
    numbers = {text: number for number, text in enumerate(texts)}
    shares = np.zeros(len(texts))
    np.add.at(shares, [numbers[candidate.text] for candidate in candidates], _shares(candidates, drawn))
    expected = measure(texts) @ shares
    order = np.argsort(-expected, kind="stable")
    places = list(distinct.values())
    return [replace(candidates[places[number]], utility=float(expected[number])) for number in order]


def _shares(candidates: Sequence[Candidate], drawn: bool) -> Float[np.ndarray, " n"]:
    """How much each candidate counts; together 1."""
    if drawn:
        return np.full(len(candidates), 1 / len(candidates))
    scores = np.array([candidate.score for candidate in candidates])
    shares = np.exp(scores - scores.max())
    return np.asarray(shares / shares.sum())
