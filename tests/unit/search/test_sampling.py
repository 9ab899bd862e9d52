import functools
import math
import random
from typing import Any

import numpy as np
import pytest
import torch

from seq2seq.search import Hypothesis, RepetitionPenalty, SearchLimits, Temperature, TopK, random_source, sample
from seq2seq.search.rules import Rows
from seq2seq.search.sampling import Draw

PAD, BOS, EOS = 0, 1, 2


def limits(count: int, longest: int = 9, **changes: Any) -> SearchLimits:
    return SearchLimits(BOS, EOS, (PAD, BOS), [1] * count, [longest] * count, **changes)


def sources(seed: int, sentences: list[int]) -> list[random.Random]:
    return [random_source(seed, sentence, 0) for sentence in sentences]


def search(model: Any, sentences: list[int], asked: SearchLimits, seed: int = 7, **options: Any) -> list[Hypothesis]:
    settled = {"filters": [], "sources": sources(seed, sentences), "device": "cpu", **options}
    return sample(model, model.start(sentences), asked, **settled)


def chi_square(counts: list[int], probabilities: list[float]) -> float:
    """Sum of squared distances from the expected counts, each over the expected count."""
    total = sum(counts)
    pairs = zip(counts, probabilities, strict=True)
    return math.fsum((count - total * p) ** 2 / (total * p) for count, p in pairs if p > 0)


def test_pieces_are_drawn_as_often_as_their_probability_says() -> None:
    """8000 draws of 6 possible pieces; with 5 degrees of freedom chi-square stays below 20.5 in 999 of 1000 cases."""
    probabilities = [0.02, 0.4, 0.0, 0.18, 0.1, 0.25, 0.05]
    count = 8000
    draw = Draw([], [random_source(11, sentence, 3) for sentence in range(count)])
    log_probs = torch.tensor([probabilities], dtype=torch.float64).log().expand(count, -1)
    drawn = draw(Rows(torch.arange(count), torch.empty(count, 0, dtype=torch.long)), log_probs)[:, 0]
    counts = np.bincount(drawn, minlength=7).tolist()
    assert counts[2] == 0
    assert chi_square(counts, probabilities) < 20.5
    flat = [0.0 if p == 0 else 1 / 6 for p in probabilities]
    assert chi_square(counts, flat) > 1000, "the test could not tell another distribution"


def test_whole_sequences_are_drawn_as_often_as_the_filtered_distribution_says(
    scripted: Any, random_scores: Any
) -> None:
    """Two pieces at temperature 0.7 from the best 3: nine pairs, 8 degrees of freedom, 26.1 in 999 of 1000 cases."""
    score = random_scores(4, vocab_size=7, spread=1.0)
    count = 2500

    @functools.cache
    def row(fed: tuple[int, ...]) -> torch.Tensor:
        logits: torch.Tensor = score(0, fed)
        return logits.index_fill(0, torch.tensor([EOS]), -torch.inf)

    def same(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
        return row(fed)

    asked = limits(count, 2, open_end=True)
    filters = [Temperature(0.7), TopK(3)]
    found = search(scripted(same), list(range(count)), asked, filters=filters)
    expected: dict[tuple[int, int], float] = {}
    for first, p in _exact(same(0, (BOS,))).items():
        for second, q in _exact(same(0, (BOS, first))).items():
            expected[first, second] = p * q
    counts = dict.fromkeys(expected, 0)
    for hypothesis in found:
        counts[hypothesis.ids] += 1  # type: ignore[index]
    assert len(expected) == 9
    assert chi_square(list(counts.values()), list(expected.values())) < 26.1


def _exact(logits: torch.Tensor) -> dict[int, float]:
    """The best three pieces that are allowed, with their chances at temperature 0.7."""
    weights = {piece: math.exp(float(logits[piece]) / 0.7) for piece in range(3, len(logits))}
    best = sorted(weights, key=lambda piece: -weights[piece])[:3]
    return {piece: weights[piece] / sum(weights[other] for other in best) for piece in best}


def test_what_is_reported_is_the_models_own_log_probability(scripted: Any, random_scores: Any) -> None:
    score = random_scores(2)
    options = {"filters": [Temperature(0.3), TopK(2)], "edits": [RepetitionPenalty(3.0, [[BOS], [BOS]])]}
    for sentence, hypothesis in enumerate(search(scripted(score), [0, 1], limits(2), **options)):
        own = [
            float(score(sentence, (BOS, *hypothesis.ids[:i])).log_softmax(0)[piece])
            for i, piece in enumerate(hypothesis.ids)
        ]
        assert hypothesis.token_log_probs == pytest.approx(own, abs=1e-12)
        assert hypothesis.log_prob == hypothesis.score == pytest.approx(math.fsum(own), abs=1e-12)


def test_a_seed_gives_the_same_samples_again_and_another_seed_others(scripted: Any, random_scores: Any) -> None:
    score = random_scores(3, spread=0.5)
    sentences = list(range(5))
    first = search(scripted(score), sentences, limits(5))
    assert search(scripted(score), sentences, limits(5)) == first
    assert search(scripted(score), sentences, limits(5), seed=8) != first


def test_a_sentences_sample_does_not_depend_on_the_batch_it_is_in(scripted: Any, random_scores: Any) -> None:
    score = random_scores(3, spread=0.5)
    together = search(scripted(score), list(range(5)), limits(5))
    assert len({len(hypothesis.ids) for hypothesis in together}) > 1
    for sentence in range(5):
        assert search(scripted(score), [sentence], limits(1)) == [together[sentence]]
    assert search(scripted(score), [0, 2, 4], limits(3)) == [together[0], together[2], together[4]]


def test_random_numbers_differ_in_seed_sentence_and_sample() -> None:
    keys = [(1, 2, 3), (2, 1, 3), (1, 23, 4), (12, 3, 4), (1, 2, 34)]
    assert len({random_source(*key).random() for key in keys}) == len(keys)
    assert random_source(1, 2, 3).random() == random_source(1, 2, 3).random()
    parts = [random_source(1, 2, 3, start).random() for start in (0, 4, 14)]
    assert len(set(parts)) == 3
    assert parts[0] == random_source(1, 2, 3).random()


def test_limits_hold_for_samples_too(scripted: Any, random_scores: Any) -> None:
    score = random_scores(1, spread=0.1)
    asked = SearchLimits(BOS, EOS, (PAD, BOS, 5), [4] * 30, [6] * 30, [[7, 8]] * 30)
    for hypothesis in search(scripted(score), list(range(30)), asked):
        assert hypothesis.ids[:2] == (7, 8)
        assert hypothesis.ids[-1] == EOS
        assert 4 <= len(hypothesis.ids) <= 6
        assert not {PAD, BOS, 5} & set(hypothesis.ids)
        assert hypothesis.hit_limit == (len(hypothesis.ids) == 6)


def test_the_largest_random_number_draws_the_last_piece_that_has_a_chance() -> None:
    class Largest(random.Random):
        def random(self) -> float:
            return math.nextafter(1.0, 0.0)

    log_probs = torch.tensor([[0.3, 0.1, 0.6, 0.0, 0.0]], dtype=torch.float64).log()
    rows = Rows(torch.tensor([0]), torch.empty(1, 0, dtype=torch.long))
    for _ in range(3):
        assert Draw([], [Largest()])(rows, log_probs).tolist() == [[2]]


def test_filters_do_not_change_what_they_are_given() -> None:
    log_probs = torch.tensor([[0.3, 0.1, 0.6]], dtype=torch.float64).log()
    before = log_probs.clone()
    Draw([Temperature(0.5), TopK(1)], [random_source(1, 0, 0)])(
        Rows(torch.tensor([0]), torch.empty(1, 0, dtype=torch.long)), log_probs
    )
    assert torch.equal(log_probs, before)


def test_a_dead_end_is_an_error(scripted: Any) -> None:
    def score(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
        logits = torch.full((11,), -torch.inf)
        logits[PAD if sentence == 1 else EOS] = 0.0
        return logits

    with pytest.raises(ValueError, match="sentence 1 has no hypothesis: every piece that its limits allow"):
        search(scripted(score), [0, 1], limits(2))


def test_nan_is_refused(scripted: Any) -> None:
    model = scripted(lambda sentence, fed: torch.full((11,), torch.nan))
    with pytest.raises(ValueError, match="log-probabilities are NaN, expected numbers"):
        search(model, [0], limits(1))
