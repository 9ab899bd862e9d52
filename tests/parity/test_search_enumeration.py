"""Beam search against all sequences enumerated: small vocabularies, short lengths, a beam that covers the space."""

import itertools
import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.config import PenaltyForm
from seq2seq.search import Hypothesis, LengthPenalty, SearchLimits, beam_search

PAD, BOS, EOS = 0, 1, 2
FIRST = 3
EXPONENTS = [-1.0, -0.5, 0.0, 0.6, 1.0, 2.0]
PENALTIES = [LengthPenalty(form, p) for form in (PenaltyForm.gnmt, PenaltyForm.power) for p in EXPONENTS]
PENALTIES.append(LengthPenalty())


@dataclass
class Histories:
    """The pieces that each row was fed, BOS first: the whole state of a scripted model."""

    rows: list[tuple[int, ...]]

    def select(self, rows: torch.Tensor, sentences: torch.Tensor, places: torch.Tensor | None = None) -> "Histories":
        return Histories([self.rows[row] for row in rows.tolist()])


class RandomTable:
    """Logits that depend on the whole history, drawn once for each history."""

    def __init__(self, seed: int, vocab_size: int, spread: float = 2.0, rounding: int | None = None) -> None:
        self.seed, self.vocab_size, self.spread, self.rounding = seed, vocab_size, spread, rounding
        self._drawn: dict[tuple[int, ...], torch.Tensor] = {}

    def logits(self, history: tuple[int, ...]) -> torch.Tensor:
        if history not in self._drawn:
            code = self.seed
            for piece in history:
                code = (code * 1_000_003 + piece + 1) % (2**61)
            drawn = torch.randn(self.vocab_size, generator=torch.Generator().manual_seed(code), dtype=torch.float64)
            drawn *= self.spread
            self._drawn[history] = drawn if self.rounding is None else drawn.round(decimals=self.rounding)
        return self._drawn[history]

    def step(self, tokens: torch.Tensor, state: Histories) -> tuple[torch.Tensor, Histories]:
        state = Histories([(*old, new) for old, new in zip(state.rows, tokens[:, 0].tolist(), strict=True)])
        return torch.stack([self.logits(row) for row in state.rows]), state


def enumerate_all(
    table: RandomTable, penalty: LengthPenalty, min_length: int, max_length: int, prefix: list[int]
) -> list[Hypothesis]:
    """Every sequence that the limits allow, scored piece by piece, best first."""
    found = []
    for length in range(max(min_length, 1), max_length + 1):
        for body in itertools.product(range(FIRST, table.vocab_size), repeat=length - 1):
            if list(body[: len(prefix)]) != prefix:
                continue
            ids = (*body, EOS)
            scores = [float(torch.log_softmax(table.logits((BOS, *ids[:i])), 0)[piece]) for i, piece in enumerate(ids)]
            log_prob = math.fsum(scores)
            found.append(Hypothesis(ids, log_prob, log_prob / penalty(length), tuple(scores), length == max_length))
    return sorted(found, key=lambda hypothesis: -hypothesis.score)


def covering_beam(vocab_size: int, max_length: int) -> int:
    """So many hypotheses that none is ever dropped, and every EOS is among the first."""
    pieces = vocab_size - FIRST
    return max(pieces ** max(max_length - 2, 0) * (pieces + 1), 2)


def run(
    table: RandomTable, penalty: LengthPenalty, *, min_length: int, max_length: int, prefix: list[int], n_best: int
) -> list[Hypothesis]:
    limits = SearchLimits(BOS, EOS, (PAD, BOS), [min_length], [max_length], [prefix])
    beam_size = covering_beam(table.vocab_size, max_length)
    return beam_search(
        table.step,
        Histories([()]),
        limits,
        beam_size=beam_size,
        n_best=min(n_best, beam_size),
        penalty=penalty,
        device="cpu",
    )[0]


def assert_same(got: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [hypothesis.ids for hypothesis in got] == [hypothesis.ids for hypothesis in expected]
    for one, other in zip(got, expected, strict=True):
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-12)
        assert one.score == pytest.approx(other.score, abs=1e-12)
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-12)
        assert one.hit_limit == other.hit_limit


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda p: f"{p.form.name}{p.exponent}")
@pytest.mark.parametrize("lengths", [(0, 5), (3, 5), (5, 5), (0, 1), (2, 4)], ids=str)
def test_a_covering_beam_gives_the_enumerated_best_for_every_penalty(
    penalty: LengthPenalty, lengths: tuple[int, int]
) -> None:
    table = RandomTable(seed=7, vocab_size=6)
    expected = enumerate_all(table, penalty, *lengths, prefix=[])
    for n_best in (1, 4):
        got = run(table, penalty, min_length=lengths[0], max_length=lengths[1], prefix=[], n_best=n_best)
        assert_same(got, expected[: min(n_best, len(expected))])


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    vocab_size=st.integers(4, 6),
    spread=st.sampled_from([0.3, 1.0, 4.0]),
    penalty=st.builds(LengthPenalty, st.sampled_from(PenaltyForm), st.floats(-2, 3)),
    max_length=st.integers(1, 5),
    n_best=st.integers(1, 6),
    data=st.data(),
)
def test_a_covering_beam_gives_the_enumerated_best_for_any_table_limits_and_prefix(
    seed: int,
    vocab_size: int,
    spread: float,
    penalty: LengthPenalty,
    max_length: int,
    n_best: int,
    data: st.DataObject,
) -> None:
    min_length = data.draw(st.integers(0, max_length))
    prefix = data.draw(st.lists(st.integers(FIRST, vocab_size - 1), max_size=min(2, max_length - 1)))
    table = RandomTable(seed, vocab_size, spread)
    expected = enumerate_all(table, penalty, min_length, max_length, prefix)
    got = run(table, penalty, min_length=min_length, max_length=max_length, prefix=prefix, n_best=n_best)
    n_best = min(n_best, covering_beam(vocab_size, max_length))
    assert_same(got, expected[: min(n_best, len(expected))])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), penalty=st.sampled_from(PENALTIES), n_best=st.integers(1, 6))
def test_a_covering_beam_gives_the_enumerated_scores_where_many_are_equal(
    seed: int, penalty: LengthPenalty, n_best: int
) -> None:
    table = RandomTable(seed, vocab_size=5, spread=0.5, rounding=0)
    expected = enumerate_all(table, penalty, 0, 5, prefix=[])
    got = run(table, penalty, min_length=0, max_length=5, prefix=[], n_best=n_best)
    assert len({hypothesis.ids for hypothesis in got}) == min(n_best, len(expected))
    assert [one.score for one in got] == pytest.approx([one.score for one in expected[:n_best]], abs=1e-12)
    again = run(table, penalty, min_length=0, max_length=5, prefix=[], n_best=1)
    assert again == got[:1]
