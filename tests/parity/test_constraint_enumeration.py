"""Beam search with phrases that hypotheses must contain, against all sequences enumerated."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.config import PenaltyForm
from seq2seq.search import Hypothesis, LengthPenalty, SearchLimits, beam_search
from seq2seq.search.constraints import Constraints, Phrase, Spelling, WordPieces
from seq2seq.search.repetition import NoRepeatNgram
from seq2seq.search.rules import Behind

PAD, BOS, EOS = 0, 1, 2
FIRST = 3
PENALTIES = [LengthPenalty(), LengthPenalty(PenaltyForm.power, -0.5), LengthPenalty(PenaltyForm.gnmt, 2.0)]


class Histories:
    """The sentence of each row and the pieces that it was fed, BOS first: the whole state of a scripted model."""

    def __init__(self, rows: list[tuple[int, ...]]) -> None:
        self.rows = rows

    def select(self, rows: torch.Tensor, sentences: torch.Tensor, places: torch.Tensor) -> "Histories":
        return Histories([self.rows[row] for row in rows.tolist()])


class RandomTable:
    """Logits that depend on the sentence and its whole history, drawn once for each history."""

    def __init__(self, seed: int, vocab_size: int, spread: float = 2.0) -> None:
        self.seed, self.vocab_size, self.spread = seed, vocab_size, spread
        self._drawn: dict[tuple[int, ...], torch.Tensor] = {}

    def logits(self, history: tuple[int, ...]) -> torch.Tensor:
        if history not in self._drawn:
            code = self.seed
            for piece in history:
                code = (code * 1_000_003 + piece + 1) % (2**61)
            drawn = torch.randn(self.vocab_size, generator=torch.Generator().manual_seed(code), dtype=torch.float64)
            self._drawn[history] = drawn * self.spread
        return self._drawn[history]

    def bonus(self, history: tuple[int, ...]) -> float:
        """What a hypothesis loses if it ends behind that history; never above 0."""
        return -abs(float(self.logits((*history, -1))[0])) / 4

    def step(self, tokens: torch.Tensor, state: Histories) -> tuple[torch.Tensor, Histories]:
        state = Histories([(*old, new) for old, new in zip(state.rows, tokens[:, 0].tolist(), strict=True)])
        return torch.stack([self.logits(row) for row in state.rows]), state


def occurrences(phrase: Phrase, ids: Sequence[int], words: WordPieces) -> list[tuple[int, int]]:
    """Where the phrase stands in a whole hypothesis, by its definition."""
    return [
        (start, start + len(spelling.pieces))
        for spelling in phrase
        for start in range(len(ids) - len(spelling.pieces) + 1)
        if tuple(ids[start : start + len(spelling.pieces)]) == spelling.pieces
        and not (spelling.whole_start and start > 0 and ids[start - 1] in words.opening)
        and not (spelling.whole_end and (ids[start + len(spelling.pieces)] in words.continuing))
    ]


def most_apart(places: Sequence[tuple[int, int]], behind: int = 0) -> int:
    return max((1 + most_apart(places, end) for start, end in places if start >= behind), default=0)


def in_order(found: Sequence[Sequence[tuple[int, int]]], behind: int = 0) -> bool:
    return not found or any(in_order(found[1:], end) for start, end in found[0] if start >= behind)


def contains_all(phrases: list[Phrase], ids: Sequence[int], words: WordPieces, *, ordered: bool) -> bool:
    """Whether a hypothesis, EOS included, has the phrases."""
    found = [occurrences(phrase, ids, words) for phrase in phrases]
    if ordered:
        return in_order(found)
    return all(most_apart(places) >= phrases.count(one) for one, places in zip(phrases, found, strict=True))


def enumerate_all(
    table: RandomTable, penalty: LengthPenalty, max_length: int, prefix: list[int], sentence: int, *, with_bonus: bool
) -> list[Hypothesis]:
    """Every sequence of up to that length, scored piece by piece, best first."""
    found = []
    for length in range(1, max_length + 1):
        for body in itertools.product(range(FIRST, table.vocab_size), repeat=length - 1):
            if list(body[: len(prefix)]) != prefix:
                continue
            ids = (*body, EOS)
            scores = [
                float(torch.log_softmax(table.logits((sentence, BOS, *ids[:at])), 0)[piece])
                for at, piece in enumerate(ids)
            ]
            log_prob = math.fsum(scores)
            score = log_prob / penalty(length) + (table.bonus((sentence, BOS, *body)) if with_bonus else 0.0)
            found.append(Hypothesis(ids, log_prob, score, tuple(scores), length == max_length))
    return sorted(found, key=lambda hypothesis: -hypothesis.score)


def repeats(ids: Sequence[int], size: int, prefix: Sequence[int]) -> bool:
    """Whether a sequence of so many pieces comes again; 0 never."""
    found = [tuple(ids[at : at + size]) for at in range(len(ids) - size + 1)]
    return size > 0 and any(found[at] in found[:at] for at in range(max(len(prefix) - size + 1, 0), len(found)))


def search(
    table: RandomTable,
    constraints: Constraints | None,
    max_lengths: list[int],
    *,
    beam_size: int,
    n_best: int,
    penalty: LengthPenalty,
    prefixes: list[list[int]] | None = None,
    min_length: int = 1,
    no_repeat_ngram: int = 0,
    with_bonus: bool = False,
    sentences: Sequence[int] = (0,),
) -> list[list[Hypothesis]]:
    limits = SearchLimits(BOS, EOS, (PAD, BOS), [min_length] * len(max_lengths), max_lengths, prefixes)
    behind = [len(limits.prefix(sentence)) for sentence in range(len(limits))]
    return beam_search(
        table.step,
        Histories([(sentence,) for sentence in sentences]),
        limits,
        beam_size=beam_size,
        n_best=n_best,
        penalty=penalty,
        rules=[Behind(NoRepeatNgram(no_repeat_ngram), behind)] if no_repeat_ngram else [],
        progress=constraints,
        bonus=(lambda state: np.array([table.bonus(row) for row in state.rows])) if with_bonus else None,
        device="cpu",
    )


def covering_beam(vocab_size: int, max_length: int) -> int:
    """So many hypotheses that none is ever dropped, and every EOS is among the first."""
    pieces = vocab_size - FIRST
    return max(pieces ** max(max_length - 2, 0) * (pieces + 1), 2)


PIECES = st.integers(FIRST, FIRST + 2)
SPELLINGS = st.tuples(st.lists(PIECES, min_size=1, max_size=3), st.booleans(), st.booleans())
PHRASES = st.lists(st.lists(SPELLINGS, min_size=1, max_size=2), min_size=1, max_size=3)
SETS = st.tuples(st.frozensets(PIECES), st.frozensets(PIECES))
Drawn = list[list[tuple[list[int], bool, bool]]]


def made(drawn: Drawn) -> list[Phrase]:
    # Not in the strategies: the checks of annotations draw random numbers of their own.
    return [tuple(Spelling(tuple(pieces), start, end) for pieces, start, end in one) for one in drawn]


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    drawn=PHRASES,
    sets=SETS,
    ordered=st.booleans(),
    penalty=st.sampled_from(PENALTIES),
    max_length=st.integers(1, 5),
    prefix=st.lists(PIECES, max_size=2),
    n_best=st.integers(1, 6),
    data=st.data(),
)
def test_a_covering_beam_gives_the_best_of_all_sequences_with_the_phrases(
    seed: int,
    drawn: Drawn,
    sets: tuple[frozenset[int], frozenset[int]],
    ordered: bool,
    penalty: LengthPenalty,
    max_length: int,
    prefix: list[int],
    n_best: int,
    data: st.DataObject,
) -> None:
    prefix = prefix[: max_length - 1]
    min_length = data.draw(st.integers(1, max_length))
    no_repeat_ngram, with_bonus = data.draw(st.integers(0, 3)), data.draw(st.booleans())
    phrases, words = made(drawn), WordPieces(*sets)
    table = RandomTable(seed, vocab_size=FIRST + 3)
    everything = enumerate_all(table, penalty, max_length, prefix, 0, with_bonus=with_bonus)
    expected = [
        one
        for one in everything
        if contains_all(phrases, one.ids, words, ordered=ordered)
        and len(one.ids) >= min_length
        and not repeats(one.ids[:-1], no_repeat_ngram, prefix)
    ]
    constraints = Constraints([phrases], [EOS], words=words, ordered=ordered)
    beam_size = covering_beam(table.vocab_size, max_length)
    n_best = min(n_best, beam_size)

    def found() -> list[Hypothesis]:
        return search(
            table,
            constraints,
            [max_length],
            beam_size=beam_size,
            n_best=n_best,
            penalty=penalty,
            prefixes=[prefix],
            min_length=min_length,
            no_repeat_ngram=no_repeat_ngram,
            with_bonus=with_bonus,
        )[0]

    if not expected:
        with pytest.raises(ValueError, match="sentence 0 has no hypothesis"):
            found()
        return
    got = found()
    assert [one.ids for one in got] == [one.ids for one in expected[:n_best]]
    for one, other in zip(got, expected, strict=False):
        assert one.score == pytest.approx(other.score, abs=1e-12)
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-12)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    drawn=PHRASES,
    sets=SETS,
    ordered=st.booleans(),
    beam_size=st.integers(2, 5),
    spread=st.sampled_from([1.0, 6.0]),
)
def test_a_narrow_beam_finds_a_hypothesis_with_the_phrases_whenever_there_is_room_for_them(
    seed: int,
    drawn: Drawn,
    sets: tuple[frozenset[int], frozenset[int]],
    ordered: bool,
    beam_size: int,
    spread: float,
) -> None:
    """As tokenizers spell: a phrase may always begin, for one of its spellings asks nothing of the piece before."""
    drawn = [[(pieces, False, end) for pieces, _, end in one] for one in drawn]
    opening, continuing = sets
    first = {pieces[0] for one in drawn for pieces, *_ in one}
    words = WordPieces(opening, continuing - first)
    phrases = made(drawn)
    table = RandomTable(seed, vocab_size=FIRST + 8, spread=spread)
    constraints = Constraints([phrases], [EOS], words=words, ordered=ordered)
    found = search(
        table, constraints, [constraints.total(0) + 1], beam_size=beam_size, n_best=1, penalty=LengthPenalty()
    )[0]
    assert contains_all(phrases, found[0].ids, words, ordered=ordered)


@settings(max_examples=5, deadline=None)
@given(
    seed=st.integers(0, 10**6), drawn=st.lists(PHRASES | st.just([]), min_size=2, max_size=4), n_best=st.integers(1, 3)
)
def test_each_sentence_of_a_batch_is_treated_as_if_alone(seed: int, drawn: list[Drawn], n_best: int) -> None:
    table = RandomTable(seed, vocab_size=FIRST + 5)
    phrases = [made(one) for one in drawn]
    max_lengths = [sum(max(len(spelling.pieces) for spelling in one) for one in of) + 3 for of in phrases]
    together = search(
        table,
        Constraints(phrases, [EOS]),
        max_lengths,
        beam_size=3,
        n_best=n_best,
        penalty=LengthPenalty(),
        sentences=range(len(phrases)),
    )
    for sentence, (of, max_length) in enumerate(zip(phrases, max_lengths, strict=True)):
        alone = search(
            table,
            Constraints([of], [EOS]) if of else None,
            [max_length],
            beam_size=3,
            n_best=n_best,
            penalty=LengthPenalty(),
            sentences=[sentence],
        )[0]
        assert together[sentence] == alone
