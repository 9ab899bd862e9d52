"""Text generation: what is fed first, several ends, limits without a forced EOS, stop tests, edited logits."""

import math
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seq2seq.config import PenaltyForm
from seq2seq.search import Hypothesis, LengthPenalty, RepetitionPenalty, SearchLimits, beam_search, greedy

PAD, BOS, EOS, OTHER = 0, 1, 2, 6
MEAN = LengthPenalty(PenaltyForm.power, 1.0)


def limits(max_lengths: list[int], **changes: Any) -> SearchLimits:
    values = {"open_end": True, **changes}
    return SearchLimits(BOS, EOS, (PAD, BOS), [1] * len(max_lengths), max_lengths, **values)


def search(model: Any, sentences: list[int], asked: SearchLimits, **options: Any) -> list[list[Hypothesis]]:
    settled = {"beam_size": 3, "n_best": 1, "penalty": MEAN, "device": "cpu", **options}
    return beam_search(model, model.start(sentences), asked, **settled)


def in_turn(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
    """After piece i, piece i + 1 is much the best."""
    logits = torch.zeros(11, dtype=torch.float64)
    logits[min(fed[-1] + 1, 10)] = 5.0
    return logits


def test_each_sentence_begins_after_its_own_start(scripted: Any) -> None:
    asked = limits([3, 3], starts=[6, 3])
    model = scripted(in_turn)
    assert [best.ids for best in greedy(model, model.start([0, 1]), asked, device="cpu")] == [(7, 8, 9), (4, 5, 6)]
    assert [best[0].ids for best in search(scripted(in_turn), [0, 1], asked)] == [(7, 8, 9), (4, 5, 6)]


def test_an_open_limit_ends_a_hypothesis_without_eos_and_without_counting_one(scripted: Any) -> None:
    model = scripted(in_turn)
    (best,) = greedy(model, model.start([0]), limits([4], starts=[3]), device="cpu")
    one = float(in_turn(0, (3,)).log_softmax(0)[4])
    assert (best.ids, best.hit_limit) == ((4, 5, 6, 7), True)
    assert best.token_log_probs == pytest.approx((one,) * 4)


def test_eos_in_the_last_place_is_an_end_and_no_cut(scripted: Any) -> None:
    def score(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
        logits = torch.zeros(11, dtype=torch.float64)
        logits[EOS if len(fed) == 3 else 5] = 5.0
        return logits

    model = scripted(score)
    (best,) = greedy(model, model.start([0]), limits([3]), device="cpu")
    assert (best.ids, best.hit_limit) == ((5, 5, EOS), False)
    assert search(scripted(score), [0], limits([3]))[0][0] == Hypothesis(
        best.ids, best.log_prob, best.log_prob / 3, best.token_log_probs, False
    )


@pytest.mark.parametrize("beam_size", [1, 3])
def test_every_end_ends(scripted: Any, beam_size: int) -> None:
    asked = limits([9, 9], starts=[3, 8], other_ends=(OTHER, 10))
    found = search(scripted(in_turn), [0, 1], asked, beam_size=beam_size)
    assert [best[0].ids for best in found] == [(4, 5, OTHER), (9, 10)]
    assert not any(best[0].hit_limit for best in found)


def test_no_end_comes_before_the_minimum_length(scripted: Any, random_scores: Any) -> None:
    asked = SearchLimits(BOS, EOS, (PAD, BOS), [4], [9], other_ends=(5, 6))
    for best in search(scripted(random_scores(1, spread=0.1)), [0], asked, beam_size=6, n_best=6)[0]:
        assert len(best.ids) >= 4
        assert not {EOS, 5, 6} & set(best.ids[:-1])


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_stop_test_ends_a_hypothesis_where_it_says(scripted: Any, beam_size: int) -> None:
    asked = limits([9, 9], starts=[3, 3])

    def stop(sentence: int, ids: tuple[int, ...]) -> bool:
        return sentence == 1 and ids[-2:] == (5, 6)

    found = search(scripted(in_turn), [0, 1], asked, beam_size=beam_size, stop=stop)
    assert [best[0].ids for best in found] == [(4, 5, 6, 7, 8, 9, 10, 10, 10), (4, 5, 6)]
    assert [best[0].hit_limit for best in found] == [True, False]


def test_a_stop_in_the_last_place_is_no_cut(scripted: Any) -> None:
    model = scripted(in_turn)
    asked = limits([2], starts=[3])
    (best,) = greedy(model, model.start([0]), asked, stop=lambda sentence, ids: ids[-1] == 5, device="cpu")
    assert (best.ids, best.hit_limit) == ((4, 5), False)


def penalised(logits: torch.Tensor, pieces: set[int], penalty: float) -> torch.Tensor:
    """The formula of the repetition penalty, one piece at a time."""
    values = [
        (value * penalty if value < 0 else value / penalty) if piece in pieces else value
        for piece, value in enumerate(logits.tolist())
    ]
    return torch.tensor(values, dtype=torch.float64)


def slow_search(
    score: Any, prompt: list[int], longest: int, *, penalty: float, beam_size: int, ends: set[int], stop: set[int]
) -> list[tuple[tuple[int, ...], float, float]]:
    """Beam search for one sentence in plain lists without an early stop: ids, score and the model's log-probability."""
    live: list[tuple[float, float, tuple[int, ...]]] = [(0.0, 0.0, ())]
    done: list[tuple[float, float, tuple[int, ...]]] = []
    for length in range(1, longest + 1):
        candidates = []
        for total, own_total, ids in live:
            logits = score(0, (prompt[-1], *ids))
            row = torch.log_softmax(penalised(logits, {*prompt, *ids}, penalty), 0).tolist()
            own = torch.log_softmax(logits, 0).tolist()
            for piece in set(range(len(row))) - {PAD, BOS}:
                candidates.append((total + row[piece], own_total + own[piece], (*ids, piece)))
        candidates.sort(key=lambda candidate: -candidate[0])
        candidates = candidates[: (1 + len(ends)) * beam_size]

        def over(ids: tuple[int, ...], length: int = length) -> bool:
            return ids[-1] in ends or ids[-1] in stop or length == longest

        done += [(total / length, own, ids) for total, own, ids in candidates[:beam_size] if over(ids)]
        live = [candidate for candidate in candidates if not over(candidate[2])][:beam_size]
    done.sort(key=lambda candidate: -candidate[0])
    return [(ids, value, own) for value, own, ids in done[:beam_size]]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**6),
    penalty=st.sampled_from([0.7, 1.0, 1.5]),
    beam_size=st.integers(2, 5),
    longest=st.integers(1, 6),
    other_ends=st.sampled_from([(), (6,), (6, 4)]),
    stop=st.sampled_from([set(), {3}]),
)
def test_beams_with_open_limits_ends_stops_and_edits_are_those_of_a_plain_loop(
    scripted: Any,
    random_scores: Any,
    seed: int,
    penalty: float,
    beam_size: int,
    longest: int,
    other_ends: tuple[int, ...],
    stop: set[int],
) -> None:
    score = random_scores(seed, vocab_size=7)
    prompt = [5, 3, 5, 4]
    asked = limits([longest], starts=[4], other_ends=other_ends)
    edits = [RepetitionPenalty(penalty, [prompt])]
    options: dict[str, Any] = {"beam_size": beam_size, "n_best": beam_size, "edits": edits}
    found = search(scripted(score), [0], asked, stop=lambda _, ids: ids[-1] in stop, **options)[0]
    expected = slow_search(
        score, prompt, longest, penalty=penalty, beam_size=beam_size, ends={EOS, *other_ends}, stop=stop
    )
    assert [best.ids for best in found] == [ids for ids, _, _ in expected]
    assert [best.score for best in found] == pytest.approx([value for _, value, _ in expected])
    assert [best.log_prob for best in found] == pytest.approx([own for _, _, own in expected])
    for best in found:
        assert math.fsum(best.token_log_probs) == pytest.approx(best.log_prob, abs=1e-12)


def test_greedy_search_goes_by_edited_logits_and_reports_the_models(scripted: Any) -> None:
    def score(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
        logits = torch.zeros(11, dtype=torch.float64)
        logits[[7, 8, 9]] = torch.tensor([3.0, 2.0, 1.8], dtype=torch.float64)
        return logits

    model = scripted(score)
    edits = [RepetitionPenalty(1.6, [[BOS]])]
    (best,) = greedy(model, model.start([0]), limits([5]), edits=edits, device="cpu")
    assert best.ids == (7, 8, 7, 7, 7)
    row = score(0, ()).log_softmax(0)
    assert best.token_log_probs == pytest.approx([float(row[piece]) for piece in best.ids], abs=1e-12)
