import math
from typing import Any

import numpy as np
import pytest
import torch

from seq2seq.config import PenaltyForm
from seq2seq.search import LengthPenalty, SearchLimits, greedy

PAD, BOS, EOS = 0, 1, 2


def limits(
    max_lengths: list[int], min_lengths: list[int] | None = None, prefixes: list[list[int]] | None = None
) -> SearchLimits:
    return SearchLimits(BOS, EOS, (PAD, BOS), min_lengths or [1] * len(max_lengths), max_lengths, prefixes)


def chain(*pieces: int) -> Any:
    """A model that puts piece i of `pieces` highest at step i."""

    def score(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
        logits = torch.zeros(11, dtype=torch.float64)
        logits[pieces[min(len(fed), len(pieces)) - 1]] = 3.0
        return logits

    return score


def test_it_takes_the_best_piece_until_eos(scripted: Any) -> None:
    model = scripted(chain(5, 6, 9, EOS))
    (best,) = greedy(model, model.start([0]), limits([8]), device="cpu")
    one = float(torch.log_softmax(torch.tensor([3.0] + [0.0] * 10, dtype=torch.float64), 0)[0])
    assert best.ids == (5, 6, 9, EOS)
    assert best.token_log_probs == pytest.approx((one,) * 4)
    assert best.log_prob == pytest.approx(4 * one)
    assert best.score == best.log_prob
    assert not best.hit_limit


def test_the_score_is_the_log_probability_over_the_penalty(scripted: Any) -> None:
    model = scripted(chain(5, 6, EOS))
    penalty = LengthPenalty(PenaltyForm.power, 1.0)
    (best,) = greedy(model, model.start([0]), limits([8]), penalty=penalty, device="cpu")
    assert best.score == pytest.approx(best.log_prob / 3)


def test_at_the_limit_it_ends_in_eos_with_its_own_log_probability_and_a_flag(scripted: Any) -> None:
    model = scripted(chain(5, 6, 7))
    (best,) = greedy(model, model.start([0]), limits([3]), device="cpu")
    assert best.ids == (5, 6, EOS)
    assert best.hit_limit
    logits = chain(5, 6, 7)(0, (BOS, 5, 6))
    assert best.token_log_probs[2] == pytest.approx(float(logits.log_softmax(0)[EOS]))


def test_suppressed_pieces_are_not_taken_even_if_best(scripted: Any) -> None:
    model = scripted(chain(PAD, BOS, 6, EOS))
    (best,) = greedy(model, model.start([0]), limits([9]), device="cpu")
    assert not {PAD, BOS} & set(best.ids)
    assert best.ids[2:] == (6, EOS) or best.ids[0] == EOS


def test_equal_pieces_give_the_lowest_id(scripted: Any) -> None:
    def score(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
        logits = torch.zeros(11)
        logits[[4, 8, 9]] = 2.0
        return logits

    model = scripted(score)
    assert greedy(model, model.start([0]), limits([3]), device="cpu")[0].ids == (4, 4, EOS)


def test_a_sentence_is_translated_as_if_alone_and_leaves_the_batch_when_done(scripted: Any, random_scores: Any) -> None:
    score = random_scores(3)
    max_lengths, min_lengths, prefixes = [9, 4, 12, 1, 7], [1, 3, 5, 1, 2], [[], [7], [3, 4], [], [10]]
    model = scripted(score)
    together = greedy(model, model.start(list(range(5))), limits(max_lengths, min_lengths, prefixes), device="cpu")
    for i in range(5):
        alone = scripted(score)
        asked = limits([max_lengths[i]], [min_lengths[i]], [prefixes[i]])
        assert greedy(alone, alone.start([i]), asked, device="cpu") == [together[i]]
    lengths = [len(hypothesis.ids) for hypothesis in together]
    assert model.num_rows == [sum(length > t for length in lengths) for t in range(max(lengths))]
    assert len(set(model.num_rows)) > 2


def test_no_sentences_give_no_answers(scripted: Any) -> None:
    model = scripted(chain(5))
    assert greedy(model, model.start([]), limits([]), device="cpu") == []
    assert model.num_rows == []


def test_a_dead_end_is_an_error(scripted: Any) -> None:
    def score(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
        logits = torch.full((11,), -torch.inf)
        logits[PAD] = 0.0
        if sentence != 1 or len(fed) < 2:
            logits[5] = 0.0
            logits[EOS] = -3.0
        return logits

    model = scripted(score)
    with pytest.raises(ValueError, match="sentence 1 has no hypothesis: every piece that its limits allow"):
        greedy(model, model.start([0, 1]), limits([6, 6]), device="cpu")


def test_a_tokenizer_larger_than_the_model_is_refused(scripted: Any) -> None:
    model = scripted(chain(5))
    with pytest.raises(ValueError, match=r"id 11 .* is beyond the model's 11 outputs"):
        greedy(model, model.start([0]), limits([6], prefixes=[[11]]), device="cpu")


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(torch.float64, torch.float64), (torch.float32, torch.float32), (torch.bfloat16, torch.float32)],
)
def test_log_probabilities_are_float32_unless_the_logits_are_float64(
    scripted: Any, random_scores: Any, dtype: torch.dtype, expected: torch.dtype
) -> None:
    score = random_scores(4, dtype=dtype)
    model = scripted(score)
    (best,) = greedy(model, model.start([0]), limits([5]), device="cpu")
    first = torch.log_softmax(score(0, (BOS,)).to(expected), 0)[best.ids[0]]
    assert best.token_log_probs[0] == pytest.approx(float(first), abs=1e-6 if expected is torch.float32 else 1e-12)


def penalised(rows: Any, logits: torch.Tensor) -> None:
    logits[:, 5] -= 9.0


def test_without_scores_it_takes_the_same_pieces_and_says_nothing_of_their_probabilities(scripted: Any) -> None:
    model = scripted(lambda sentence, fed: chain(5, 6, 7, 8, EOS)(sentence, fed) + torch.arange(11) / 20)
    asked = limits([8, 3, 6], prefixes=[[], [9], [3, 3]])
    for edits in ([], [penalised]):
        wanted = greedy(model, model.start([0, 1, 2]), asked, edits=edits, device="cpu")
        found = greedy(model, model.start([0, 1, 2]), asked, edits=edits, scored=False, device="cpu")
        assert [(one.ids, one.hit_limit) for one in found] == [(one.ids, one.hit_limit) for one in wanted]
        for one in found:
            assert math.isnan(one.log_prob)
            assert math.isnan(one.score)
            assert one.token_log_probs == ()


def test_without_scores_a_broken_model_and_a_dead_end_are_refused_as_with_them(scripted: Any) -> None:
    for number in (torch.nan, torch.inf):
        logits = torch.zeros(11)
        logits[7] = number
        broken = scripted(lambda sentence, fed, logits=logits: logits)
        for scored in (True, False):
            with pytest.raises(ValueError, match="log-probabilities are NaN, expected numbers"):
                greedy(broken, broken.start([0]), limits([8]), scored=scored, device="cpu")
    bos = torch.full((11,), -torch.inf)
    bos[BOS] = 0.0
    nothing = scripted(lambda sentence, fed: bos)
    for scored in (True, False):
        with pytest.raises(ValueError, match="sentence 0 has no hypothesis"):
            greedy(nothing, nothing.start([0]), limits([8]), scored=scored, device="cpu")


class Rough:
    """Estimates of a scripted model: its logits, some of them off, and what they leave open settled."""

    def __init__(self, logits: torch.Tensor, useful: bool) -> None:
        self.values = logits.bfloat16()
        self._logits, self._useful = logits, useful

    def best(self) -> np.ndarray | None:
        allowed = torch.where(self.values == -torch.inf, -torch.inf, self._logits)
        return allowed.numpy().argmax(1)[:, None] if self._useful else None

    def logits(self) -> torch.Tensor:
        return self._logits.clone()


def estimating(model: Any, useful: list[bool]) -> Any:
    """An estimate function whose answers are of use, or not, in turn; then it gives plain logits."""

    def estimate(tokens: torch.Tensor, state: Any) -> tuple[Any, Any]:
        logits, state = model(tokens, state)
        return (Rough(logits, useful.pop(0)) if useful else logits), state

    return estimate


@pytest.mark.parametrize("useful", [[True] * 9, [True, True, False], [False], [True], []])
def test_estimates_lead_to_the_same_pieces(scripted: Any, random_scores: Any, useful: list[bool]) -> None:
    model = scripted(random_scores(7))
    asked = limits([8, 3, 6, 7], min_lengths=[1, 2, 5, 1], prefixes=[[], [9], [3, 3], []])
    wanted = greedy(model, model.start([0, 1, 2, 3]), asked, scored=False, device="cpu")
    left = list(useful)
    estimate = estimating(model, left)
    found = greedy(model, model.start([0, 1, 2, 3]), asked, scored=False, estimate=estimate, device="cpu")
    assert [(one.ids, one.hit_limit) for one in found] == [(one.ids, one.hit_limit) for one in wanted]
    assert len(left) < max(1, len(useful))


def test_after_estimates_that_are_of_no_use_there_are_no_more(scripted: Any) -> None:
    model = scripted(chain(5, 6, 7, 8, EOS))
    left = [True, False, True, True]
    greedy(model, model.start([0]), limits([8]), scored=False, estimate=estimating(model, left), device="cpu")
    assert left == [True, True]


@pytest.mark.parametrize("more", [{"scored": True}, {"edits": [penalised]}, {"rules": [penalised]}])
def test_estimates_are_not_asked_for_where_more_is_wanted(scripted: Any, more: dict[str, Any]) -> None:
    model = scripted(chain(5, 6, 7, 8, EOS))
    left = [True]
    estimate = estimating(model, left)
    options = {"scored": False} | more
    found = greedy(model, model.start([0]), limits([8]), **options, estimate=estimate, device="cpu")
    wanted = greedy(model, model.start([0]), limits([8]), **options, device="cpu")
    assert left == [True]
    assert [one.ids for one in found] == [one.ids for one in wanted]


def test_estimates_of_a_smaller_vocabulary_and_dead_ends_are_refused(scripted: Any) -> None:
    small = scripted(lambda sentence, fed: torch.zeros(2))  # EOS is 2
    with pytest.raises(ValueError, match="beyond the model's 2 outputs"):
        greedy(small, small.start([0]), limits([8]), scored=False, estimate=estimating(small, [True]), device="cpu")
    bos = torch.full((11,), -torch.inf)
    bos[BOS] = 0.0
    nothing = scripted(lambda sentence, fed: bos)
    with pytest.raises(ValueError, match="sentence 0 has no hypothesis"):
        greedy(
            nothing, nothing.start([0]), limits([8]), scored=False, estimate=estimating(nothing, [False]), device="cpu"
        )
