import itertools
import math

import numpy as np
import pytest
import torch

from seq2seq.config import PenaltyForm
from seq2seq.search import LengthPenalty, SearchLimits, beam_search
from seq2seq.search.coverage import Coverage

PAD, BOS, EOS = 0, 1, 2
V, S = 5, 3
LONGEST = 4


def attention(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
    """What the position that was last fed looks at: a row that sums to 1, for each history another one."""
    code = sentence + 1
    for piece in fed:
        code = code * 31 + piece
    return (torch.randn(S, generator=torch.Generator().manual_seed(code), dtype=torch.float64) * 2).softmax(0)


def attended(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
    """The sums over the positions so far; the last source piece of the second sentence is padding."""
    total = sum((attention(sentence, fed[: end + 1]) for end in range(len(fed))), torch.zeros(S))
    if sentence == 1:
        total[S - 1] = 1.0
    return total


def sums(state: object) -> torch.Tensor:
    return torch.stack([attended(sentence, fed) for sentence, fed in state.rows])


def missing(sentence: int, ids: tuple[int, ...]) -> float:
    """The sum of logarithms of equation 14, by hand."""
    total = attended(sentence, (BOS, *ids[:-1])).tolist()
    return sum(math.log(min(one, 1.0)) for one in total)


def everything(score, sentence: int, penalty: LengthPenalty, weight: float, shortest: int = 1):
    """All hypotheses there are, each with its score, best first."""
    found = []
    for length in range(shortest, LONGEST + 1):
        for front in itertools.product([EOS + 1, EOS + 2], repeat=length - 1):
            ids = (*front, EOS)
            log_prob = 0.0
            for place, piece in enumerate(ids):
                log_prob += float(score(sentence, (BOS, *ids[:place])).log_softmax(0)[piece])
            found.append((log_prob / penalty(length) + weight * missing(sentence, ids), ids, log_prob))
    return sorted(found, reverse=True)


def limits(num_sentences: int) -> SearchLimits:
    return SearchLimits(BOS, EOS, (PAD, BOS), [1] * num_sentences, [LONGEST] * num_sentences)


@pytest.mark.parametrize("form", list(PenaltyForm))
@pytest.mark.parametrize("exponent", [-0.7, 0.0, 1.3])
@pytest.mark.parametrize("weight", [0.3, 4.0])
def test_a_beam_with_room_for_all_finds_what_enumeration_finds(scripted, random_scores, form, exponent, weight):
    penalty = LengthPenalty(form, exponent)
    for seed in range(3):
        model = scripted(random_scores(seed, V))
        found = beam_search(
            model,
            model.start([0, 1]),
            limits(2),
            beam_size=20,
            n_best=6,
            penalty=penalty,
            bonus=Coverage(weight, sums),
            device="cpu",
        )
        for sentence in range(2):
            expected = everything(model.score, sentence, penalty, weight)[:6]
            assert [one.ids for one in found[sentence]] == [ids for _, ids, _ in expected]
            for one, (score, _, log_prob) in zip(found[sentence], expected, strict=True):
                assert one.score == pytest.approx(score, abs=1e-9)
                assert one.log_prob == pytest.approx(log_prob, abs=1e-9), "what is reported is the model's"


def test_the_search_goes_on_until_no_coverage_can_turn_the_order(scripted, random_scores):
    """The end is always the most probable piece: without coverage a search would end after one step."""

    def score(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
        logits = random_scores(1, V)(sentence, fed)
        logits[EOS] = logits.max() + 0.5
        return logits

    penalty = LengthPenalty(PenaltyForm.power, 0.0)
    lengths, steps = {}, {}
    for weight in (0.0, 3.0):
        model = scripted(score)
        options = {"bonus": Coverage(weight, sums)} if weight else {}
        found = beam_search(
            model, model.start([0]), limits(1), beam_size=20, n_best=1, penalty=penalty, device="cpu", **options
        )[0]
        assert found[0].ids == everything(score, 0, penalty, weight)[0][1]
        lengths[weight], steps[weight] = len(found[0].ids), len(model.num_rows)
    assert lengths[0.0] == 1
    assert lengths[3.0] > 1
    assert steps[3.0] > steps[0.0]


def test_the_first_ones_do_not_depend_on_how_many_are_asked_for(scripted, random_scores):
    def found(n_best: int) -> list[tuple[int, ...]]:
        model = scripted(random_scores(4, V))
        best = beam_search(
            model,
            model.start([0, 1, 2]),
            limits(3),
            beam_size=4,
            n_best=n_best,
            penalty=LengthPenalty(PenaltyForm.gnmt, 0.6),
            bonus=Coverage(1.0, sums),
            device="cpu",
        )
        return [one.ids for hypotheses in best for one in hypotheses[:1]]

    assert found(1) == found(4)


def test_the_penalty_is_the_weight_times_the_logarithms_of_what_is_lacking():
    table = torch.tensor([[0.5, 1.0, 2.0], [1.0, 1.0, 1.0], [0.25, 0.5, 0.0]])
    found = Coverage(0.5, lambda state: table)(None)
    assert found.shape == (3,)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found[:2], [0.5 * math.log(0.5), 0.0], atol=1e-12)
    assert math.isfinite(found[2])
    assert found[2] < -40
    assert (found <= 0).all()
