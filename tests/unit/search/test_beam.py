import math
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seq2seq.config import PenaltyForm
from seq2seq.search import Hypothesis, LengthPenalty, SearchLimits, beam_search, greedy

PAD, BOS, EOS = 0, 1, 2
MEAN = LengthPenalty(PenaltyForm.power, 1.0)


def limits(
    max_lengths: list[int], min_lengths: list[int] | None = None, prefixes: list[list[int]] | None = None
) -> SearchLimits:
    return SearchLimits(BOS, EOS, (PAD, BOS), min_lengths or [1] * len(max_lengths), max_lengths, prefixes)


def search(model: Any, sentences: list[int], asked: SearchLimits, **options: Any) -> list[list[Hypothesis]]:
    settled = {"beam_size": 3, "n_best": 1, "penalty": MEAN, "device": "cpu", **options}
    return beam_search(model, model.start(sentences), asked, **settled)


def slow_beam_search(
    score: Any, sentence: int, asked: SearchLimits, *, place: int, beam_size: int, n_best: int, penalty: LengthPenalty
) -> list[tuple[tuple[int, ...], float]]:
    """One sentence, plain lists, every candidate looked at, no early stop: ids and scores, best first."""
    least, most, prefix = asked.min_lengths[place], asked.max_lengths[place], list(asked.prefix(place))
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    done: list[tuple[float, tuple[int, ...]]] = []
    for length in range(1, most + 1):
        candidates = []
        for total, ids in live:
            row = torch.log_softmax(score(sentence, (BOS, *ids)), 0).tolist()
            for piece in range(len(row)):
                if length <= len(prefix):
                    allowed = piece == prefix[length - 1]
                elif length == most:
                    allowed = piece == EOS
                else:
                    allowed = piece not in asked.suppressed and not (piece == EOS and length < least)
                if allowed:
                    candidates.append((total + row[piece], (*ids, piece)))
        candidates.sort(key=lambda candidate: -candidate[0])
        done += [(total / penalty(length), ids) for total, ids in candidates[:beam_size] if ids[-1] == EOS]
        live = [(total, ids) for total, ids in candidates if ids[-1] != EOS][:beam_size]
    done.sort(key=lambda candidate: -candidate[0])
    return [(ids, value) for value, ids in done[:n_best]]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**6),
    beam_size=st.integers(2, 6),
    spread=st.sampled_from([0.5, 2.0, 5.0]),
    penalty=st.builds(LengthPenalty, st.sampled_from(PenaltyForm), st.sampled_from([-1.0, -0.5, 0.0, 0.6, 1.0, 2.0])),
    data=st.data(),
)
def test_it_gives_what_a_plain_loop_over_all_candidates_gives(
    scripted: Any,
    random_scores: Any,
    seed: int,
    beam_size: int,
    spread: float,
    penalty: LengthPenalty,
    data: st.DataObject,
) -> None:
    max_lengths = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    min_lengths = [data.draw(st.integers(0, longest)) for longest in max_lengths]
    prefixes = [data.draw(st.lists(st.integers(3, 6), max_size=min(2, longest - 1))) for longest in max_lengths]
    n_best = data.draw(st.integers(1, beam_size))
    score = random_scores(seed, vocab_size=7, spread=spread)
    asked = limits(max_lengths, min_lengths, prefixes)
    sentences = list(range(10, 10 + len(max_lengths)))
    got = search(scripted(score), sentences, asked, beam_size=beam_size, n_best=n_best, penalty=penalty)
    for place, sentence in enumerate(sentences):
        expected = slow_beam_search(
            score, sentence, asked, place=place, beam_size=beam_size, n_best=n_best, penalty=penalty
        )
        assert [hypothesis.ids for hypothesis in got[place]] == [ids for ids, _ in expected]
        assert [hypothesis.score for hypothesis in got[place]] == pytest.approx([value for _, value in expected])
        for hypothesis in got[place]:
            assert hypothesis.hit_limit == (len(hypothesis.ids) == max_lengths[place])
            assert math.fsum(hypothesis.token_log_probs) == pytest.approx(hypothesis.log_prob, abs=1e-12)


@pytest.mark.parametrize("decimals", [None, 0])
def test_a_sentence_is_translated_as_if_alone(scripted: Any, random_scores: Any, decimals: int | None) -> None:
    score = random_scores(8, spread=1.5, decimals=decimals)
    max_lengths, min_lengths, prefixes = [9, 4, 12, 1, 7], [1, 3, 5, 1, 2], [[], [7], [3, 4], [], [10]]
    asked = limits(max_lengths, min_lengths, prefixes)
    together = search(scripted(score), list(range(5)), asked, n_best=3)
    for i in range(5):
        alone = limits([max_lengths[i]], [min_lengths[i]], [prefixes[i]])
        assert search(scripted(score), [i], alone, n_best=3) == [together[i]]
    backwards = limits(max_lengths[::-1], min_lengths[::-1], prefixes[::-1])
    assert search(_renumbered(scripted, score, 5), list(range(5)), backwards, n_best=3) == together[::-1]


def _renumbered(scripted: Any, score: Any, count: int) -> Any:
    """The same model with its sentences in the opposite order."""
    return scripted(lambda sentence, fed: score(count - 1 - sentence, fed))


def test_the_first_step_has_one_row_a_sentence_and_the_next_as_many_as_are_live(
    scripted: Any, random_scores: Any
) -> None:
    model = scripted(random_scores(1))
    search(model, [0, 1], limits([6, 6]), beam_size=4)
    assert model.num_rows[:2] == [2, 8]


def test_rows_of_finished_sentences_are_gone(scripted: Any, random_scores: Any) -> None:
    model = scripted(random_scores(1))
    asked = limits([2, 9, 5], [2, 9, 5])
    search(model, [0, 1, 2], asked)
    assert model.num_rows == [3, 9, 6, 6, 6, 3, 3, 3, 3]


def test_the_state_is_left_alone_when_every_row_continues_itself(scripted: Any) -> None:
    def score(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
        logits = torch.full((11,), -30.0, dtype=torch.float64)
        if len(fed) == 1:
            logits[[4, 5, 6]] = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)
        else:
            logits[fed[-1]] = 9.0
        return logits

    model = scripted(score)
    state = model.start([0, 1])
    beam_search(model, state, limits([5, 5]), beam_size=3, n_best=1, penalty=MEAN, device="cpu")
    assert state.selections == [([0, 0, 0, 1, 1, 1], [0, 1])]


def test_it_stops_as_soon_as_nothing_live_can_win(scripted: Any) -> None:
    def score(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
        logits = torch.zeros(11, dtype=torch.float64)
        logits[EOS] = 9.0
        return logits

    model = scripted(score)
    best = search(model, [0], limits([50]), penalty=LengthPenalty())[0]
    assert [hypothesis.ids for hypothesis in best] == [(EOS,)]
    assert model.num_rows == [1]


def test_the_shortest_completion_is_the_bound_when_a_negative_exponent_favours_short_ones(scripted: Any) -> None:
    def score(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
        probabilities = torch.full((11,), 0.001, dtype=torch.float64)
        if len(fed) == 1:
            probabilities[3:] = 0.06
            probabilities[4], probabilities[EOS] = 0.4, 0.08
        else:
            probabilities[EOS] = 0.99
        return probabilities.log()

    best = search(scripted(score), [0], limits([20]), penalty=LengthPenalty(PenaltyForm.power, -1.0))[0]
    assert best[0].ids == (4, EOS)


def test_the_model_is_fed_neither_suppressed_pieces_nor_eos_where_a_sentence_has_fewer_hypotheses_than_others(
    scripted: Any, random_scores: Any
) -> None:
    drawn = random_scores(5)
    fed_pieces: set[int] = set()

    def score(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
        fed_pieces.update(fed[1:])
        return drawn(sentence, fed)

    search(scripted(score), [0, 1, 2], limits([7, 7, 7], prefixes=[[5, 6, 7], [], [4]]), beam_size=4)
    assert fed_pieces
    assert not fed_pieces & {PAD, BOS, EOS}


def test_all_hypotheses_finishing_at_once_end_the_search(scripted: Any) -> None:
    def score(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
        logits = torch.full((11,), -torch.inf, dtype=torch.float64)
        if len(fed) == 1:
            logits[[4, 5, 6]] = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)
        else:
            logits[EOS] = 0.0
        return logits

    model = scripted(score)
    best = search(model, [0, 1], limits([9, 9]), n_best=3)
    assert [[hypothesis.ids for hypothesis in one] for one in best] == [[(4, EOS), (5, EOS), (6, EOS)]] * 2
    assert not any(hypothesis.hit_limit for one in best for hypothesis in one)
    assert model.num_rows == [2, 6]


def test_equal_scores_put_the_first_found_and_the_lower_ids_first(scripted: Any) -> None:
    model = scripted(lambda sentence, fed: torch.zeros(11, dtype=torch.float64))
    best = search(model, [0], limits([3], [3]), n_best=3)[0]
    assert [hypothesis.ids for hypothesis in best] == [(3, 3, EOS), (3, 4, EOS), (3, 5, EOS)]


def test_fewer_are_returned_when_fewer_exist(scripted: Any, random_scores: Any) -> None:
    best = search(scripted(random_scores(2)), [0, 1], limits([1, 6]), n_best=3)
    assert [hypothesis.ids for hypothesis in best[0]] == [(EOS,)]
    assert len(best[1]) == 3


def test_the_n_best_are_distinct_under_the_identity_and_the_first_is_the_same_for_every_n(
    scripted: Any, random_scores: Any
) -> None:
    def text(ids: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(piece % 3 for piece in ids)

    same_first = 0
    for seed in range(8):
        score = random_scores(seed, spread=1.0)
        found = {
            n: search(scripted(score), [0], limits([6]), beam_size=5, n_best=n, identity=text)[0] for n in (1, 3, 5)
        }
        plain = search(scripted(score), [0], limits([6]), beam_size=5, n_best=5)[0]
        assert found[1] == found[3][:1] == found[5][:1] == plain[:1]
        assert found[3] == found[5][:3]
        texts = [text(hypothesis.ids) for hypothesis in found[5]]
        assert len(set(texts)) == len(texts)
        same_first += len({text(hypothesis.ids) for hypothesis in plain}) < len(plain)
    assert same_first > 0, "no seed had two hypotheses with one text, so nothing was tested"


def test_pieces_that_are_suppressed_or_too_early_are_never_produced(scripted: Any) -> None:
    def score(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
        return torch.linspace(4.0, -4.0, 11, dtype=torch.float64).roll(sentence)

    asked = SearchLimits(BOS, EOS, (PAD, BOS, 3, 10), [3, 5], [6, 7])
    for place, found in enumerate(search(scripted(score), [0, 1], asked, n_best=3)):
        for hypothesis in found:
            assert set(hypothesis.ids[:-1]) <= {4, 5, 6, 7, 8, 9}
            assert len(hypothesis.ids) >= asked.min_lengths[place]


def test_a_beam_of_one_is_greedy_search(scripted: Any, random_scores: Any) -> None:
    for seed in range(5):
        score = random_scores(seed)
        asked = limits([9, 3, 6], [1, 2, 4], [[], [5], []])
        model = scripted(score)
        expected = greedy(model, model.start([0, 1, 2]), asked, penalty=MEAN, device="cpu")
        assert search(scripted(score), [0, 1, 2], asked, beam_size=1) == [[best] for best in expected]


def test_float32_logits_give_the_forced_score_of_the_ids_they_led_to(scripted: Any, random_scores: Any) -> None:
    score = random_scores(6, dtype=torch.float32)
    for hypothesis in search(scripted(score), [0], limits([6]), n_best=3)[0]:
        forced = [
            float(torch.log_softmax(score(0, (BOS, *hypothesis.ids[:i])), 0)[piece])
            for i, piece in enumerate(hypothesis.ids)
        ]
        assert hypothesis.token_log_probs == pytest.approx(forced, abs=1e-6)


def test_no_sentences_give_no_answers(scripted: Any, random_scores: Any) -> None:
    assert search(scripted(random_scores(1)), [], limits([])) == []


@pytest.mark.parametrize(("beam_size", "n_best"), [(3, 4), (3, 0), (0, 0), (0, 1)])
def test_more_answers_than_the_beam_has_are_refused(scripted: Any, beam_size: int, n_best: int) -> None:
    model = scripted(lambda sentence, fed: torch.zeros(11))
    with pytest.raises(ValueError, match=f"n_best={n_best} with beam_size={beam_size}; choose 1 <= n_best"):
        search(model, [0], limits([3]), beam_size=beam_size, n_best=n_best)


def test_a_dead_end_is_an_error(scripted: Any) -> None:
    def score(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
        logits = torch.full((11,), -torch.inf)
        logits[PAD] = 0.0
        if sentence == 0:
            logits[EOS] = 0.0
        return logits

    with pytest.raises(ValueError, match="sentence 1 has no hypothesis: every piece that its limits allow"):
        search(scripted(score), [0, 1], limits([6, 6]))
