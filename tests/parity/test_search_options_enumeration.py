"""Beam search under any combination of options against all sequences enumerated, in batches of unlike sentences.

The enumeration knows no rule of the package: it goes through all sequences, throws out those that an option forbids,
and scores the others piece by piece.
"""

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.config import PenaltyForm
from seq2seq.search import Hypothesis, LengthPenalty, RepetitionPenalty, Rule, SearchLimits, beam_search, greedy
from seq2seq.search.phrases import ForbiddenPhrases, PhrasePieces, SpelledPieces
from seq2seq.search.repetition import NoRepeatNgram
from seq2seq.search.rules import Behind, Suppressed
from seq2seq.search.warpers import PiecePenalty
from seq2seq.text.phrase_automaton import PhraseAutomaton
from seq2seq.text.words import is_whole

PAD, BOS, EOS, UNK = 0, 1, 2, 3
V = 6
FIRST = UNK
MAX_LENGTH = 5
SPELLINGS = [(b" a", b"b"), (b"a", b" "), ("\u732b".encode(), b"a"), (b"\xc3", b"\xa9"), (b"a b", b"-a")]
"""What the two pieces behind the unknown one spell."""
PHRASES = ["a", "ab", "b", "a b", "a a", "\u732b", "\u732ba", "\u00e9", "\u00e9\u00e9", "a-a", "b-a", "-"]


@dataclass
class Histories:
    """Sentence and fed pieces of each row: the whole state of a scripted model."""

    rows: list[tuple[int, ...]]

    def select(self, rows: torch.Tensor, sentences: torch.Tensor, places: torch.Tensor | None = None) -> "Histories":
        return Histories([self.rows[row] for row in rows.tolist()])


class RandomTable:
    """Logits that depend on sentence and history, drawn once for each."""

    def __init__(self, seed: int, spread: float) -> None:
        self.seed, self.spread = seed, spread
        self._drawn: dict[tuple[int, ...], torch.Tensor] = {}

    def logits(self, history: tuple[int, ...]) -> torch.Tensor:
        if history not in self._drawn:
            code = self.seed
            for piece in history:
                code = (code * 1_000_003 + piece + 1) % (2**61)
            drawn = torch.randn(V, generator=torch.Generator().manual_seed(code), dtype=torch.float64)
            self._drawn[history] = drawn * self.spread
        return self._drawn[history]

    def step(self, tokens: torch.Tensor, state: Histories) -> tuple[torch.Tensor, Histories]:
        state = Histories([(*old, new) for old, new in zip(state.rows, tokens[:, 0].tolist(), strict=True)])
        return torch.stack([self.logits(row) for row in state.rows]), state


@dataclass(frozen=True)
class Sentence:
    """What is asked for of one sentence."""

    min_length: int = 0
    max_length: int = MAX_LENGTH
    prefix: tuple[int, ...] = ()


@dataclass(frozen=True)
class Options:
    """What is asked for of all."""

    penalty: LengthPenalty = field(default_factory=LengthPenalty)
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    unknown_penalty: float = 0.0
    forbid_unknown: bool = False
    forbidden: tuple[str, ...] = ()
    spelled: tuple[bytes, bytes] = SPELLINGS[0]
    bonus: float = 0.0
    patience: float | None = None
    n_best: int = 3

    def allows(self, sentence: Sentence, body: tuple[int, ...]) -> bool:
        """Whether the pieces before EOS may be an answer."""
        prefix = len(sentence.prefix)
        if body[:prefix] != sentence.prefix:
            return False
        if self.forbid_unknown and UNK in body[prefix:]:
            return False
        if not self.keeps_clear(sentence, body, forced_end=len(body) + 1 == sentence.max_length):
            return False
        n = self.no_repeat_ngram
        ends = range(max(n, prefix + 1), len(body) + 1) if n else ()
        return all(body[end - n : end] not in {body[at : at + n] for at in range(end - n)} for end in ends)

    def text(self, body: tuple[int, ...]) -> str:
        """What the pieces spell, each run of spaces as one, and none in front."""
        spelled = b"".join(self.spelled[piece - UNK - 1] for piece in body if piece > UNK)
        return re.sub(" +", " ", spelled.decode(errors="replace")).lstrip(" ")

    def keeps_clear(self, sentence: Sentence, body: tuple[int, ...], *, forced_end: bool) -> bool:
        """Whether no forbidden phrase is whole in the text, but for those that the prefix has already."""
        text, given = self.text(body), self.text(sentence.prefix).rstrip("\ufffd")
        if forced_end and body == sentence.prefix:
            return True
        for phrase in self.forbidden:
            for start in range(len(text)):
                end = start + len(phrase)
                if text[start:end] == phrase and is_whole(text, start, end) and end >= len(given):
                    return False
        return True

    def gain(self, history: tuple[int, ...]) -> float:
        """What an end gains behind sentence, BOS and pieces; at most 0."""
        return -self.bonus * (sum(place * piece for place, piece in enumerate(history, start=1)) % 7)

    def edited(self, logits: torch.Tensor, history: tuple[int, ...]) -> list[float]:
        """Logits as the search is to see them."""
        values: list[float] = logits.tolist()
        for piece in set(history):
            factor = self.repetition_penalty
            values[piece] = values[piece] * factor if values[piece] < 0 else values[piece] / factor
        values[UNK] -= self.unknown_penalty
        return values

    def edits(self, sentences: list[Sentence]) -> list[Rule]:
        """As the package does it."""
        spared = [len(sentence.prefix) for sentence in sentences]
        edits: list[Rule] = []
        if self.repetition_penalty != 1:
            edits.append(Behind(RepetitionPenalty(self.repetition_penalty), spared))
        if self.unknown_penalty:
            edits.append(Behind(PiecePenalty(UNK, self.unknown_penalty), spared))
        return edits

    def rules(self, sentences: list[Sentence], *, cautious: bool = False) -> list[Rule]:
        spared = [len(sentence.prefix) for sentence in sentences]
        rules: list[Rule] = []
        if self.no_repeat_ngram:
            rules.append(Behind(NoRepeatNgram(self.no_repeat_ngram), spared))
        if self.forbid_unknown:
            rules.append(Behind(Suppressed([UNK], torch.device("cpu")), spared))
        if self.forbidden:
            pieces = PhrasePieces(
                PhraseAutomaton(self.forbidden), SpelledPieces([b""] * (UNK + 1) + list(self.spelled))
            )
            rules.append(Behind(ForbiddenPhrases(pieces, limits(sentences), cautious=cautious), spared))
        return rules


def log_softmax(values: list[float]) -> list[float]:
    top = max(values)
    total = top + math.log(math.fsum(math.exp(value - top) for value in values))
    return [value - total for value in values]


def scored(table: RandomTable, options: Options, number: int, sentence: Sentence, ids: tuple[int, ...]) -> Hypothesis:
    """One sequence, piece by piece."""
    own, total = [], 0.0
    for place, piece in enumerate(ids):
        logits = table.logits((number, BOS, *ids[:place]))
        own.append(log_softmax(logits.tolist())[piece])
        spared = place < len(sentence.prefix)
        total += own[-1] if spared else log_softmax(options.edited(logits, ids[:place]))[piece]
    score = total / options.penalty(len(ids)) + options.gain((number, BOS, *ids[:-1]))
    return Hypothesis(ids, math.fsum(own), score, tuple(own), len(ids) == sentence.max_length)


def sequences(sentence: Sentence) -> Iterator[tuple[int, ...]]:
    """All pieces before EOS that the lengths allow."""
    for length in range(max(sentence.min_length, 1), sentence.max_length + 1):
        yield from itertools.product(range(FIRST, V), repeat=length - 1)


def enumerated(table: RandomTable, options: Options, number: int, sentence: Sentence) -> list[Hypothesis]:
    """All answers, best first."""
    found = [
        scored(table, options, number, sentence, (*body, EOS))
        for body in sequences(sentence)
        if options.allows(sentence, body)
    ]
    return sorted(found, key=lambda hypothesis: -hypothesis.score)


def limits(sentences: list[Sentence]) -> SearchLimits:
    return SearchLimits(
        BOS,
        EOS,
        (PAD, BOS),
        [sentence.min_length for sentence in sentences],
        [sentence.max_length for sentence in sentences],
        [list(sentence.prefix) for sentence in sentences],
    )


def start(sentences: list[Sentence]) -> Histories:
    return Histories([(number,) for number in range(len(sentences))])


@dataclass
class Gains:
    """The bonus of a search."""

    options: Options

    def __call__(self, state: object) -> np.ndarray:
        assert isinstance(state, Histories)
        return np.array([self.options.gain(row) for row in state.rows])


def searched(table: RandomTable, options: Options, sentences: list[Sentence], beam_size: int) -> list[list[Hypothesis]]:
    return beam_search(
        table.step,
        start(sentences),
        limits(sentences),
        beam_size=beam_size,
        n_best=min(options.n_best, beam_size),
        penalty=options.penalty,
        edits=options.edits(sentences),
        rules=options.rules(sentences),
        bonus=Gains(options) if options.bonus and beam_size > 1 else None,
        patience=options.patience,
        device="cpu",
    )


def covering_beam(sentences: list[Sentence]) -> int:
    """So many hypotheses that none is ever dropped, and every EOS is among the first."""
    pieces, longest = V - FIRST, max(sentence.max_length for sentence in sentences)
    return max(pieces ** max(longest - 2, 0) * (pieces + 1), 2)


def assert_same(got: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [hypothesis.ids for hypothesis in got] == [hypothesis.ids for hypothesis in expected]
    for one, other in zip(got, expected, strict=True):
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-10)
        assert one.score == pytest.approx(other.score, abs=1e-10)
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-10)
        assert one.hit_limit == other.hit_limit


@st.composite
def asked(draw: st.DrawFn) -> Sentence:
    """Limits of a sentence."""
    max_length = draw(st.integers(1, MAX_LENGTH))
    prefix = draw(st.lists(st.integers(FIRST, V - 1), max_size=min(3, max_length - 1)))
    return Sentence(draw(st.integers(0, max_length)), max_length, tuple(prefix))


OPTIONS = st.builds(
    Options,
    penalty=st.builds(LengthPenalty, st.sampled_from(PenaltyForm), st.floats(-2, 3)),
    no_repeat_ngram=st.integers(0, 3),
    repetition_penalty=st.sampled_from([1.0, 1.2, 3.0, 0.7]),
    unknown_penalty=st.sampled_from([0.0, 0.5, 4.0]),
    forbid_unknown=st.booleans(),
    forbidden=st.lists(st.sampled_from(PHRASES), max_size=3).map(tuple),
    spelled=st.sampled_from(SPELLINGS),
    bonus=st.sampled_from([0.0, 0.3]),
    patience=st.sampled_from([None, 1e9]),
    n_best=st.integers(1, 5),
)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([0.3, 1.0, 4.0]),
    options=OPTIONS,
    data=st.data(),
)
def test_a_covering_beam_gives_the_enumerated_best_under_any_options(
    seed: int, spread: float, options: Options, data: st.DataObject
) -> None:
    sentences = data.draw(st.lists(asked(), min_size=1, max_size=3))
    table = RandomTable(seed, spread)
    expected = [enumerated(table, options, number, sentence) for number, sentence in enumerate(sentences)]
    beam_size = covering_beam(sentences)
    if not all(expected):
        with pytest.raises(ValueError, match=f"sentence {expected.index([])} has no hypothesis"):
            searched(table, options, sentences, beam_size)
        return
    found = searched(table, options, sentences, beam_size)
    for got, best in zip(found, expected, strict=True):
        assert_same(got, best[: min(options.n_best, beam_size)])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), options=OPTIONS, beam_size=st.integers(1, 4), data=st.data())
def test_what_a_narrow_beam_finds_is_allowed_and_worth_what_it_says_and_never_more_than_the_best(
    seed: int, options: Options, beam_size: int, data: st.DataObject
) -> None:
    sentences = data.draw(st.lists(asked(), min_size=1, max_size=3))
    table = RandomTable(seed, 2.0)
    expected = [enumerated(table, options, number, sentence) for number, sentence in enumerate(sentences)]
    try:
        found = searched(table, options, sentences, beam_size)
    except ValueError as error:
        assert "has no hypothesis" in str(error)  # noqa: PT017  a narrow beam may run into a dead end
        pressed = any(sentence.prefix or sentence.min_length > 1 for sentence in sentences)
        assert options.no_repeat_ngram or options.forbid_unknown or (options.forbidden and pressed)
        return
    for got, everything in zip(found, expected, strict=True):
        of_ids = {hypothesis.ids: hypothesis for hypothesis in everything}
        assert got == sorted(got, key=lambda hypothesis: -hypothesis.score)
        if beam_size > 1:
            assert_same(got, [of_ids[hypothesis.ids] for hypothesis in got])
        for hypothesis in got:
            assert hypothesis.ids in of_ids
            assert hypothesis.log_prob == pytest.approx(of_ids[hypothesis.ids].log_prob, abs=1e-10)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), options=OPTIONS, data=st.data())
def test_greedy_search_takes_the_best_piece_that_is_allowed_at_every_step(
    seed: int, options: Options, data: st.DataObject
) -> None:
    sentences = data.draw(st.lists(asked(), min_size=1, max_size=3))
    table = RandomTable(seed, 2.0)
    expected = [stepwise(table, options, number, sentence) for number, sentence in enumerate(sentences)]
    rules, edits = options.rules(sentences, cautious=True), options.edits(sentences)
    if () in expected:
        with pytest.raises(ValueError, match="has no hypothesis"):
            greedy(table.step, start(sentences), limits(sentences), edits=edits, rules=rules, device="cpu")
        return
    found = greedy(table.step, start(sentences), limits(sentences), edits=edits, rules=rules, device="cpu")
    assert [hypothesis.ids for hypothesis in found] == expected


def stepwise(table: RandomTable, options: Options, number: int, sentence: Sentence) -> tuple[int, ...]:
    """Greedy search written out; () at a dead end."""
    ids: tuple[int, ...] = ()
    while EOS not in ids:
        if len(ids) < len(sentence.prefix):
            ids = (*ids, sentence.prefix[len(ids)])
            continue
        values = options.edited(table.logits((number, BOS, *ids)), ids)
        allowed = [piece for piece in range(FIRST, V) if options.allows(sentence, (*ids, piece))]
        last = len(ids) + 1 >= sentence.max_length
        if last:
            allowed = []
        if len(ids) + 1 >= sentence.min_length and options.keeps_clear(sentence, ids, forced_end=last):
            allowed.append(EOS)
        if not allowed:
            return ()
        ids = (*ids, max(allowed, key=lambda piece: values[piece]))
    return ids
