"""Faults of searches that users met in other toolkits: S1, S2, S6, S7, B3, B6 of the list of cases."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch

from seq2seq.config import PenaltyForm
from seq2seq.search import Hypothesis, LengthPenalty, SearchLimits, beam_search, greedy

PAD, BOS, EOS, A, B, C = 0, 1, 2, 3, 4, 5
V = 6
PENALTIES = [
    LengthPenalty(form, exponent)
    for form in (PenaltyForm.gnmt, PenaltyForm.power, PenaltyForm.none)
    for exponent in (-1.0, -0.5, 0.0, 0.6, 1.0, 2.0)
]
Probabilities = dict[int, float]


class Histories:
    """What each row was fed, with its sentence: the state of a scripted model."""

    def __init__(self, rows: list[tuple[int, ...]]) -> None:
        self.rows = rows

    def select(self, rows: torch.Tensor, sentences: torch.Tensor, places: torch.Tensor | None = None) -> "Histories":
        return Histories([self.rows[row] for row in rows.tolist()])


class NeverReordered(Histories):
    """The fault: rows are dropped or repeated to the right number, but keep their old order."""

    def select(
        self, rows: torch.Tensor, sentences: torch.Tensor, places: torch.Tensor | None = None
    ) -> "NeverReordered":
        return NeverReordered([self.rows[i % len(self.rows)] for i in range(len(rows))])


def scripted(table: Callable[[int, tuple[int, ...]], Probabilities]) -> Callable:  # type: ignore[type-arg]
    """A step function from a table: sentence and pieces so far (no BOS) to the probabilities of the next piece."""

    def step(tokens: torch.Tensor, state: Histories) -> tuple[torch.Tensor, Histories]:
        rows = [(*row, piece) for row, piece in zip(state.rows, tokens[:, 0].tolist(), strict=True)]
        logits = torch.full((len(rows), V), 1e-9, dtype=torch.float64)
        for row, (sentence, _bos, *so_far) in enumerate(rows):
            for piece, probability in table(sentence, tuple(so_far)).items():
                logits[row, piece] = probability
        return logits.log(), type(state)(rows)

    return step


def limits(max_lengths: list[int], prefixes: list[list[int]] | None = None) -> SearchLimits:
    return SearchLimits(BOS, EOS, (PAD, BOS), [1] * len(max_lengths), max_lengths, prefixes)


def search(
    table: Callable[[int, tuple[int, ...]], Probabilities],
    asked: SearchLimits,
    *,
    penalty: LengthPenalty,
    beam_size: int = 3,
    n_best: int = 1,
    state: type[Histories] = Histories,
    sentences: list[int] | None = None,
) -> list[list[Hypothesis]]:
    start = state([(sentence,) for sentence in sentences or range(len(asked))])
    return beam_search(scripted(table), start, asked, beam_size=beam_size, n_best=n_best, penalty=penalty, device="cpu")


def random_table(seed: int) -> Callable[[int, tuple[int, ...]], Probabilities]:
    def table(sentence: int, so_far: tuple[int, ...]) -> Probabilities:
        code = hash((seed, sentence, so_far)) % 2**61
        drawn = torch.randn(V, generator=torch.Generator().manual_seed(code), dtype=torch.float64)
        return dict(enumerate((2 * drawn).softmax(0).tolist()))

    return table


def best_by_brute_force(
    table: Callable[[int, tuple[int, ...]], Probabilities], penalty: LengthPenalty, max_length: int
) -> list[tuple[float, tuple[int, ...]]]:
    scored = []
    for length in range(max_length):
        for body in itertools.product((A, B, C), repeat=length):
            ids = (*body, EOS)
            total = 0.0
            for i, piece in enumerate(ids):
                row = table(0, ids[:i])
                norm = sum(row.get(other, 1e-9) for other in range(V))
                total += math.log(row.get(piece, 1e-9) / norm)
            scored.append((total / penalty(length + 1), ids))
    return sorted(scored, reverse=True)


def late_winner(sentence: int, so_far: tuple[int, ...]) -> Probabilities:
    """`EOS` at once is the most probable first piece; A B EOS costs little more in all, and less for each piece."""
    if so_far == ():
        return {EOS: 0.5, A: 0.45, C: 0.05}
    if so_far == (A,):
        return {B: 0.96, EOS: 0.04}
    if so_far == (A, B):
        return {EOS: 0.97, C: 0.03}
    return {EOS: 0.5, C: 0.5}


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda p: f"{p.form.name}{p.exponent}")
def test_s1_the_best_normalised_answer_is_found_although_a_shorter_one_ends_first(penalty: LengthPenalty) -> None:
    for table in (late_winner, random_table(1), random_table(2)):
        best = search(table, limits([5]), penalty=penalty, beam_size=27 * 4)[0][0]
        score, ids = best_by_brute_force(table, penalty, 5)[0]
        assert best.ids == ids
        assert best.score == pytest.approx(score, abs=1e-9)


def test_s1_an_answer_two_pieces_longer_than_the_first_finished_one_wins_under_the_mean() -> None:
    best = search(late_winner, limits([9]), penalty=LengthPenalty(PenaltyForm.power, 1.0))[0][0]
    assert best.ids == (A, B, EOS)
    assert search(late_winner, limits([9]), penalty=LengthPenalty())[0][0].ids == (EOS,)


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda p: f"{p.form.name}{p.exponent}")
def test_s2_the_first_of_the_n_best_is_the_answer_of_n_best_1(penalty: LengthPenalty) -> None:
    for seed in range(3):
        found = {
            n: search(random_table(seed), limits([6, 6]), penalty=penalty, beam_size=5, n_best=n) for n in (1, 3, 5)
        }
        for sentence in range(2):
            assert found[1][sentence] == found[3][sentence][:1] == found[5][sentence][:1]
            assert found[3][sentence] == found[5][sentence][:3]
            rows = found[5][sentence]
            assert [row.score for row in rows] == sorted((row.score for row in rows), reverse=True)
            assert len({row.ids for row in rows}) == len(rows) == 5


def test_s6_lines_with_and_without_a_prefix_in_one_batch_are_each_treated_as_if_alone() -> None:
    penalty = LengthPenalty(PenaltyForm.gnmt, 1.0)
    prefixes: list[list[int]] = [[C, C], [], [B], []]
    table = random_table(3)
    together = search(table, limits([6] * 4, prefixes), penalty=penalty, n_best=3)
    for i, prefix in enumerate(prefixes):
        alone = search(table, limits([6], [prefix]), penalty=penalty, n_best=3, sentences=[i])
        assert alone == [together[i]]
        assert all(list(row.ids[: len(prefix)]) == prefix for row in together[i])
    free = search(table, limits([6] * 4), penalty=penalty, n_best=3)
    assert [free[i] == together[i] for i in range(4)] == [False, True, False, True]


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda p: f"{p.form.name}{p.exponent}")
def test_s7_a_covering_beam_gives_all_of_the_brute_force_list(penalty: LengthPenalty) -> None:
    table = random_table(4)
    expected = best_by_brute_force(table, penalty, 4)
    got = search(table, limits([4]), penalty=penalty, beam_size=9 * 4, n_best=36)[0]
    assert [row.ids for row in got] == [ids for _, ids in expected[:36]]


def test_s7_a_beam_of_1_is_greedy() -> None:
    for seed in range(4):
        asked = limits([6, 3, 5])
        start = Histories([(sentence,) for sentence in range(3)])
        expected = greedy(scripted(random_table(seed)), start, asked, device="cpu")
        got = search(random_table(seed), asked, penalty=LengthPenalty(), beam_size=1)
        assert got == [[best] for best in expected]


def test_s7_no_beam_beats_the_covering_one_and_a_larger_one_changes_nothing() -> None:
    for seed, penalty in itertools.product(range(4), PENALTIES[::4]):
        table = random_table(seed)
        covering = search(table, limits([4]), penalty=penalty, beam_size=36)[0][0]
        smaller = [search(table, limits([4]), penalty=penalty, beam_size=w)[0][0].score for w in (1, 2, 3, 9)]
        assert max(smaller) <= covering.score
        assert search(table, limits([4]), penalty=penalty, beam_size=60)[0][0] == covering


def test_b3_a_finished_hypothesis_is_not_overwritten_by_a_sentence_that_runs_on() -> None:
    def table(sentence: int, so_far: tuple[int, ...]) -> Probabilities:
        last = 1 if sentence == 0 else 5
        return {EOS: 0.9, C: 0.1} if len(so_far) >= last else {(A, B)[sentence]: 0.8, C: 0.15, EOS: 0.05}

    penalty = LengthPenalty(PenaltyForm.power, 1.0)
    together = search(table, limits([9, 9]), penalty=penalty, n_best=2)
    assert together[0][0].ids == (A, EOS)
    assert together[1][0].ids == (B, B, B, B, B, EOS)
    for sentence in range(2):
        assert search(table, limits([9]), penalty=penalty, n_best=2, sentences=[sentence]) == [together[sentence]]


def overtaken(sentence: int, so_far: tuple[int, ...]) -> Probabilities:
    """A leads after the first step; after the second, both of B's continuations do. Each has its own end."""
    if so_far == ():
        return {A: 0.6, B: 0.4}
    if len(so_far) == 1:
        return {A: 0.25, B: 0.25, C: 0.25, EOS: 0.25} if so_far[0] == A else {C: 0.6, A: 0.4}
    if len(so_far) == 2:
        return {(B, C): {B: 1.0}, (B, A): {C: 1.0}}.get(so_far, {A: 1.0})
    return {EOS: 1.0}


def test_b6_the_state_follows_the_hypotheses_when_the_second_beam_overtakes_the_first() -> None:
    found = search(overtaken, limits([6]), penalty=LengthPenalty(), beam_size=2, n_best=2)[0]
    assert [row.ids for row in found] == [(B, C, B, EOS), (B, A, C, EOS)]
    assert [math.exp(row.log_prob) for row in found] == pytest.approx([0.24, 0.16], abs=1e-6)


def test_b6_a_state_that_is_not_reordered_gives_another_answer_so_the_case_above_bites() -> None:
    found = search(overtaken, limits([6]), penalty=LengthPenalty(), beam_size=2, n_best=2, state=NeverReordered)[0]
    assert [row.ids for row in found] != [(B, C, B, EOS), (B, A, C, EOS)]
