"""`Translator` under any combination of options that has an exact answer, against all translations enumerated.

The enumeration has the models' logits for every beginning of a translation, from one pass over all of them, and knows
no rule of the package: the options are written out anew from what their docstrings promise, and how a phrase is spelled
stands in a table.
"""

import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.bundle import Bundle
from seq2seq.config import Architecture, Average, DecodeConfig, ModelConfig, PenaltyForm, Tying
from seq2seq.corpus.shortlist import Shortlist
from seq2seq.models import build_model
from seq2seq.text.special import SpecialIds
from seq2seq.text.tokenizer import Tokenizer, table_digest
from seq2seq.translator import Request, Translator

pytestmark = pytest.mark.whole_runs  # the checks of annotations draw random numbers, which strategies must not

BOS, EOS, UNK = 1, 2, 3
V = 8
PIECES = range(UNK, V)
"""What a translation may be made of, EOS aside."""
LETTERS = "abu"
"""Where two of them meet a word goes on; the unknown piece is taken for a letter, u."""


@dataclass(frozen=True)
class Vocabulary:
    """Four pieces, and the pieces of everything that is asked for."""

    pieces: tuple[str, str, str, str]
    spelled: dict[str, tuple[tuple[str, ...], ...]]
    prefixes: tuple[str, ...]


VOCABULARIES = (
    Vocabulary(
        ("a", "▁a", "b", "-"),
        {
            "a": (("a",), ("▁a",)),
            "b": (("b",),),
            "-": (("-",),),
            "ab": (("a", "b"), ("▁a", "b")),
            "aa": (("a", "a"), ("▁a", "a")),
            "a a": (("a", "▁a"), ("▁a", "▁a")),
            "b-": (("b", "-"),),
            "-a": (("-", "a"),),
            "b a": (("b", "▁a"),),
        },
        ("b", "-", "a", "aa", "?", "b?", "a-a", "bb-"),
    ),
    Vocabulary(
        ("ab", "▁a", "b", "-"),
        {
            "ab": (("ab",), ("▁a", "b")),
            "b": (("b",),),
            "-": (("-",),),
            "b ab": (("b", "▁a", "b"),),
            "b-ab": (("b", "-", "ab"),),
            "abb": (("ab", "b"), ("▁a", "b", "b")),
        },
        ("b", "ab", "-", "ab a", "?", "b-b"),
    ),
    Vocabulary(
        ("a", "▁a", "猫", "-"),
        {
            "a": (("a",), ("▁a",)),
            "猫": (("猫",),),
            "猫猫": (("猫", "猫"),),
            "猫a": (("猫", "a"),),
            "a猫": (("a", "猫"), ("▁a", "猫")),
            "a-": (("a", "-"), ("▁a", "-")),
        },
        ("猫", "a", "猫a", "?", "-猫", "a?a"),
    ),
)


class FewPieces(Tokenizer):
    """Cuts off the longest piece that the rest of a text starts with. Spaces belong to the word behind them."""

    format = "few pieces"
    vocab_size = V
    special = SpecialIds()

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = ["<pad>", "<s>", "</s>", "<unk>", *pieces]
        self._longest_first = sorted(pieces, key=len, reverse=True)

    def encode(self, line: str) -> list[int]:
        rest, ids = "▁".join(line.split()), []
        while rest:
            piece = next((piece for piece in self._longest_first if rest.startswith(piece)), "<unk>")
            ids.append(self._pieces.index(piece))
            rest = rest[1:] if piece == "<unk>" else rest.removeprefix(piece)
        return ids

    def decode_text(self, ids: Iterable[int]) -> str:
        return "".join(self._pieces[id_] for id_ in ids if id_ > UNK).replace("▁", " ").lstrip(" ")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return [self._pieces[id_] for id_ in ids]

    def spans(self, line: str) -> list[tuple[int, int]]:
        raise NotImplementedError

    @property
    def sha256(self) -> str:
        return table_digest(self._pieces)

    @property
    def vocabulary_sha256(self) -> str:
        return self.sha256

    def files(self, side: str) -> dict[str, bytes]:
        raise NotImplementedError


@functools.cache
def bundle(vocabulary: int, seed: int) -> Bundle:
    """A random model in float64; every other one has a decoder alone. Two rows of its outputs are no piece's."""
    kind = {"num_encoder_layers": 1, "tying": Tying.none}
    if seed % 2:
        kind = {"num_encoder_layers": 0, "tying": Tying.two_way, "architecture": Architecture.decoder_only}
    config = ModelConfig(d_model=8, num_heads=2, d_ff=12, num_decoder_layers=2, vocab_multiple=5, **kind)
    tokenizer = tokenizers()[vocabulary]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = build_model(config, V, V).double().eval().requires_grad_(False)
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
        model.output.mul_(1 + seed % 3)
    return Bundle(model, config, tokenizer, tokenizer, languages=("de", "en"))


@functools.cache
def tokenizers() -> list[FewPieces]:
    return [FewPieces(vocabulary.pieces) for vocabulary in VOCABULARIES]


@dataclass(frozen=True)
class Case:
    """All that is asked for."""

    vocabulary: int
    decode: DecodeConfig
    lines: tuple[Request, ...]
    seeds: tuple[int, ...]
    weights: tuple[float, ...]
    average: Average
    candidates: tuple[tuple[int, ...], ...] = ()
    """Of the shortlist: target pieces of each source piece."""
    frequent: tuple[int, ...] = ()

    @property
    def tokenizer(self) -> FewPieces:
        return tokenizers()[self.vocabulary]

    def translator(self) -> Translator:
        bundles = [bundle(self.vocabulary, seed) for seed in self.seeds]
        if self.decode.shortlist:
            own = self.tokenizer.sha256
            shortlist = Shortlist(
                num_targets=V,
                candidates=np.array(self.candidates, dtype=np.int32),
                same=np.full(V, -1, dtype=np.int32),
                frequent=np.array(self.frequent, dtype=np.int32),
                always=np.arange(UNK + 1, dtype=np.int32),
                sha256=(own, own),
            )
            bundles[0] = replace(bundles[0], shortlist=shortlist)
        return Translator(bundles, weights=self.weights, average=self.average)


@dataclass(frozen=True)
class Answer:
    """A translation that there may be."""

    ids: tuple[int, ...]
    text: str
    token_log_probs: tuple[float, ...]
    score: float
    hit_limit: bool


def log_sum_exp(values: Iterable[float]) -> float:
    values = list(values)
    top = max(values)
    return top + math.log(math.fsum(math.exp(value - top) for value in values))


def log_softmax(logits: dict[int, float]) -> dict[int, float]:
    norm = log_sum_exp(logits.values())
    return {piece: value - norm for piece, value in logits.items()}


def joined(left: str, right: str) -> bool:
    """Whether a word goes on from one text to the next."""
    return bool(left) and bool(right) and left[-1] in LETTERS and right[0] in LETTERS


def whole_places(text: str, words: str) -> list[int]:
    """Where words begin that stand in a text as whole words."""
    starts = [start for start in range(len(text)) if text.startswith(words, start)]
    return [
        start for start in starts if not joined(text[:start], words) and not joined(words, text[start + len(words) :])
    ]


@dataclass
class Enumeration:
    """All translations of one line."""

    case: Case
    line: Request
    source: list[int] = field(init=False)
    given: tuple[int, ...] = field(init=False)
    forced: bool = field(init=False)

    def __post_init__(self) -> None:
        self.source = [*self.case.tokenizer.encode(self.line.text), EOS]
        self.forced = self.line.target is not None
        self.given = tuple(self.case.tokenizer.encode(self.line.target if self.forced else self.line.prefix))
        self.shortest, self.longest = self._lengths()
        self._run()

    def _lengths(self) -> tuple[int, int]:
        """Fewest and most pieces, EOS included."""
        decode, length = self.case.decode, len(self.source)
        if self.forced:
            return len(self.given) + 1, len(self.given) + 1
        needed = len(self.given) + sum(max(map(len, self.spelled(phrase))) for phrase in self.line.phrases)
        longest = max(
            math.ceil(decode.max_length_factor * length + decode.max_length_offset),
            decode.min_length,
            needed + decode.max_length_offset,
        )
        longest = min(longest, decode.max_length)
        return min(max(decode.min_length, math.ceil(decode.min_length_factor * length)), longest), longest

    def spelled(self, phrase: str) -> list[tuple[str, ...]]:
        table = VOCABULARIES[self.case.vocabulary].spelled
        return list(dict.fromkeys(pieces for text in phrase.split("|") for pieces in table[text]))

    def columns(self) -> list[int]:
        """The outputs that log-probabilities are normalised over."""
        if not self.case.decode.shortlist:
            return list(range(len(bundle(self.case.vocabulary, self.case.seeds[0]).model.output)))
        own = {*range(UNK + 1), *self.case.frequent, *self.given}
        own |= {id_ for piece in self.source for id_ in self.case.candidates[piece] if id_ >= 0}
        names = VOCABULARIES[self.case.vocabulary].pieces
        own |= {
            UNK + 1 + names.index(piece)
            for phrase in self.line.phrases
            for pieces in self.spelled(phrase)
            for piece in pieces
        }
        return sorted(own)

    def _run(self) -> None:
        """Logits and attention for all beginnings, from one pass of each model over the longest of them."""
        longest, decode = self.longest, self.case.decode
        beginnings = [self.given] if self.forced else list(itertools.product(PIECES, repeat=longest - 1))
        tgt_in = torch.tensor([[BOS, *body] for body in beginnings])
        src = torch.tensor([self.source]).expand(len(tgt_in), -1)
        every = torch.ones_like(src, dtype=torch.bool)
        columns = self.columns()
        self._places: dict[tuple[int, ...], tuple[int, int]] = {}
        for row, body in enumerate(beginnings):
            for length in range(longest):
                self._places.setdefault(body[:length], (row, length))
        bundles = [bundle(self.case.vocabulary, seed) for seed in self.case.seeds]
        self._members = [one.model(src, every, tgt_in)[..., columns].tolist() for one in bundles]
        self._columns = columns
        if decode.coverage_penalty:
            layer = 0 if decode.alignment_layer is None else decode.alignment_layer - 1
            head = None if decode.alignment_head is None else decode.alignment_head - 1
            self._weights = bundles[0].model.cross_weights(src, every, tgt_in, layer=layer, head=head).cumsum(1)

    def logits(self, body: tuple[int, ...]) -> dict[int, float]:
        """Of the piece behind `body`; those of an ensemble have the mean of the members' constants."""
        row, length = self._places[body]
        members = [member[row][length] for member in self._members]
        if self.case.average is Average.log_probability or len(members) == 1:
            mean = [self._mean(values) for values in zip(*members, strict=True)]
        else:
            norms = [log_sum_exp(values) for values in members]
            constant = self._mean(norms)
            mean = [
                constant + math.log(self._mean(math.exp(v - norm) for v, norm in zip(values, norms, strict=True)))
                for values in zip(*members, strict=True)
            ]
        return dict(zip(self._columns, mean, strict=True))

    def _mean(self, values: Iterable[float]) -> float:
        weights = self.case.weights
        return math.fsum(w * value for w, value in zip(weights, values, strict=True)) / math.fsum(weights)

    def edited(self, logits: dict[int, float], body: tuple[int, ...]) -> dict[int, float]:
        """Logits as they are compared; what is given costs what the model says."""
        if self.forced or len(body) < len(self.given):
            return logits
        decode, logits = self.case.decode, dict(logits)
        for piece in set(body):
            factor = decode.repetition_penalty
            logits[piece] = logits[piece] * factor if logits[piece] < 0 else logits[piece] / factor
        logits[UNK] -= decode.unknown_penalty
        return logits

    def may_follow(self, body: tuple[int, ...], piece: int) -> bool:
        """Whether the piece may stand behind `body`, whatever comes later."""
        if len(body) < len(self.given):
            return piece == self.given[len(body)]
        if self.forced or (self.case.decode.forbid_unknown and piece == UNK):
            return False
        n, longer = self.case.decode.no_repeat_ngram, (*body, piece)
        grams = [longer[at : at + n] for at in range(len(longer) - n + 1)]
        return not n or not grams or grams[-1] not in grams[:-1]

    def may_end(self, body: tuple[int, ...]) -> bool:
        """Whether `body` may be a whole translation."""
        if len(body) < max(len(self.given), self.shortest - 1):
            return False
        return self.forced or (self.keeps_clear(body) and self.has_phrases(body))

    def keeps_clear(self, body: tuple[int, ...]) -> bool:
        """Whether no forbidden phrase is whole but inside what is given, or because there is no room for more."""
        if body == self.given and len(body) + 1 == self.longest:
            return True
        text, given = (re.sub(" +", " ", self.case.tokenizer.decode(ids)) for ids in (body, self.given))
        return not any(
            start + len(words) >= len(given)
            for words in self.case.decode.forbidden
            for start in whole_places(text, words)
        )

    def has_phrases(self, body: tuple[int, ...]) -> bool:
        written = [piece.replace("<unk>", "u") for piece in self.case.tokenizer.pieces(body)]
        phrases = self.line.phrases
        places = [self._places_of(phrase, written) for phrase in phrases]
        if self.case.decode.ordered_phrases:
            return in_order(places)
        return all(most_apart(own) >= phrases.count(phrase) for phrase, own in zip(phrases, places, strict=True))

    def _places_of(self, phrase: str, written: list[str]) -> list[tuple[int, int]]:
        return [
            (start, start + len(pieces))
            for pieces in self.spelled(phrase)
            for start in range(len(written) - len(pieces) + 1)
            if tuple(written[start : start + len(pieces)]) == pieces
            and not joined("".join(written[:start]), pieces[0])
            and not joined(pieces[-1], "".join(written[start + len(pieces) :]))
        ]

    def bonus(self, body: tuple[int, ...]) -> float:
        """What a translation loses by the source pieces that it has not attended to, EOS aside."""
        decode = self.case.decode
        if not decode.coverage_penalty:
            return 0.0
        row, length = self._places[body]
        sums = self._weights[row, length, :-1].tolist()
        return decode.coverage_penalty * math.fsum(math.log(max(min(paid, 1.0), 1e-38)) for paid in sums)

    def answers(self) -> list[Answer]:
        """Of each text the best one, best first."""
        best: dict[str, Answer] = {}
        for answer in sorted(self._walk((), (), 0.0), key=lambda answer: -answer.score):
            best.setdefault(answer.text, answer)
        return list(best.values())

    def _walk(self, body: tuple[int, ...], own: tuple[float, ...], total: float) -> Iterator[Answer]:
        """All translations that begin with `body`."""
        logits = self.logits(body)
        model, compared = log_softmax(logits), log_softmax(self.edited(logits, body))
        length = len(body) + 1
        if self.may_end(body):
            score = (total + compared[EOS]) / self.divisor(length) + self.bonus(body)
            text, hit_limit = self.case.tokenizer.decode(body), length == self.longest and not self.forced
            yield Answer((*body, EOS), text, (*own, model[EOS]), score, hit_limit)
        for piece in PIECES if length < self.longest else ():
            if piece in logits and self.may_follow(body, piece):
                yield from self._walk((*body, piece), (*own, model[piece]), total + compared[piece])

    def divisor(self, length: int) -> float:
        decode = self.case.decode
        base = {PenaltyForm.none: 1.0, PenaltyForm.gnmt: (5 + length) / 6, PenaltyForm.power: float(length)}
        return base[decode.penalty_form] ** decode.length_penalty


def most_apart(places: Sequence[tuple[int, int]], behind: int = 0) -> int:
    return max((1 + most_apart(places, end) for start, end in places if start >= behind), default=0)


def in_order(found: Sequence[Sequence[tuple[int, int]]], behind: int = 0) -> bool:
    return not found or any(in_order(found[1:], end) for start, end in found[0] if start >= behind)


def refusal(line: Enumeration) -> str | None:
    """What may be said about phrases, before the search, that other options rule out or leave no room for.

    That is not exact: phrases are taken to share no pieces. One that stands in what is given is let pass.
    """
    decode, phrases = line.case.decode, line.line.phrases
    given = line.case.tokenizer.decode(line.given)
    for phrase in phrases:
        texts = phrase.split("|")
        if any(whole_places(given, text) for text in texts):
            continue
        if any(all(whole_places(text, words) for text in texts) for words in decode.forbidden):
            return "which forbidden rules out"
        n = decode.no_repeat_ngram
        grams = [[own[at : at + n] for at in range(len(own) - n + 1)] for own in line.spelled(phrase)]
        pairs = [[*one, *other] for one in grams for other in (grams if phrases.count(phrase) > 1 else [[]])]
        if n and all(len(set(own)) < len(own) for own in pairs):
            return f"which no_repeat_ngram={n} rules out"
    shortest = sum(min(map(len, line.spelled(phrase))) for phrase in phrases)
    if phrases and len(line.given) + shortest + 1 > decode.max_length:
        return "has phrases that take"
    return None


@st.composite
def requests(draw: st.DrawFn, vocabulary: Vocabulary, tokenizer: FewPieces, room: int, *, phrases: bool) -> Request:
    """A line, and what its translation must be like; `room` pieces may be given."""
    text = draw(st.lists(st.sampled_from(vocabulary.pieces), min_size=1, max_size=3))
    text = "".join(text).replace("▁", " ")
    given = [prefix for prefix in vocabulary.prefixes if len(tokenizer.encode(prefix)) <= room]
    short = [prefix for prefix in given if len(tokenizer.encode(prefix)) <= room - 2]
    kinds = ["", "prefix", "target", "blank"] + ["phrases", "phrases", "phrases", "both", "both"] * phrases
    wanted = draw(st.sampled_from(kinds))
    if wanted == "target" and given:
        return Request(text, target=draw(st.sampled_from(given)))
    of = {"prefix": given, "both": short}.get(wanted, ())
    prefix = draw(st.sampled_from(of)) if of else ""
    asked: list[str] = []
    if wanted in ("phrases", "both"):
        words = st.sampled_from(sorted(vocabulary.spelled))
        either = st.tuples(words, words).map(lambda two: "|".join(dict.fromkeys(two)))
        asked = draw(st.lists(words | either, min_size=1, max_size=draw(st.sampled_from([1, 2, 3]))))
    return Request("" if wanted == "blank" else text, prefix=prefix, phrases=tuple(asked))


@st.composite
def cases(draw: st.DrawFn, *, beam: bool) -> Case:
    """Any options. The beam, where one is wanted, is so large that no hypothesis is ever dropped."""
    number = draw(st.integers(0, len(VOCABULARIES) - 1))
    vocabulary = VOCABULARIES[number]
    max_length = draw(st.sampled_from([4, 4, 5, 4, 3, 2]))
    factor = draw(st.sampled_from([2.0, 2.0, 0.5]))
    coverage = draw(st.sampled_from([0.0, 0.0, 0.3])) if beam else 0.0
    decode = DecodeConfig(
        beam_size=max(len(PIECES) ** (max_length - 2) * (len(PIECES) + 1), 2) if beam else 1,
        n_best=draw(st.integers(1, 5)) if beam else 1,
        penalty_form=draw(st.sampled_from(PenaltyForm)),
        length_penalty=draw(st.sampled_from([0.6, 0.0, 1.0, -0.8, 6.0])),
        coverage_penalty=coverage,
        alignment_layer=draw(st.sampled_from([None, 1, 2])) if coverage else None,
        alignment_head=draw(st.sampled_from([None, 2])) if coverage else None,
        min_length=draw(st.sampled_from([1, 1, *range(2, max_length + 1)])),
        max_length=max_length,
        max_length_factor=factor,
        max_length_offset=10 if factor == 2.0 else 1,
        min_length_factor=draw(st.sampled_from([0.0, 0.4 * factor])),
        no_repeat_ngram=draw(st.sampled_from([0, 0, 3, 2, 2, 1])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.5, 4.0, 0.7])),
        forbidden=draw(st.lists(st.sampled_from([*vocabulary.spelled, "?", "a b"]), max_size=2)),
        unknown_penalty=draw(st.sampled_from([0.0, 0.5, 4.0])),
        forbid_unknown=draw(st.booleans()),
        ordered_phrases=draw(st.booleans()),
        shortlist=draw(st.booleans()),
        batch_tokens=draw(st.sampled_from([2048, 8])),
    )
    # What a prefix already has of the phrases counts, up to a part of one; that is not written out anew here.
    lines = st.lists(
        requests(vocabulary, tokenizers()[number], max_length - 1, phrases=beam), min_size=1, max_size=3
    ).filter(lambda lines: factor == 2.0 or not any(line.prefix and line.phrases for line in lines))
    lines = draw(lines)
    asked = [phrase for line in lines for phrase in line.phrases]
    if draw(st.sampled_from([True, True, False])):
        apart = [words for words in decode.forbidden if not any(words in phrase for phrase in asked)]
        decode = replace(decode, forbidden=apart)
    ids = st.integers(UNK + 1, V - 1)
    pieces = st.lists(ids, max_size=2).map(lambda own: tuple([*own, -1, -1][:2]))
    seeds = draw(st.lists(st.integers(1, 4), min_size=1, max_size=2, unique=True))
    return Case(
        vocabulary=number,
        decode=decode,
        lines=tuple(lines),
        seeds=tuple(seeds),
        weights=(1.0, draw(st.sampled_from([1.0, 3.0])))[: len(seeds)],
        average=draw(st.sampled_from(Average)),
        candidates=tuple(draw(st.lists(pieces, min_size=V, max_size=V))) if decode.shortlist else (),
        frequent=tuple(draw(st.lists(ids, max_size=1))) if decode.shortlist else (),
    )


SCORE_TOLERANCE = 1e-5
"""With a coverage penalty, whose sums of attention are in float32."""


def assert_is(got: object, expected: Answer, decode: DecodeConfig) -> None:
    assert got.ids == expected.ids
    assert got.text == expected.text
    assert got.token_log_probs == pytest.approx(expected.token_log_probs, abs=1e-10)
    assert got.log_prob == pytest.approx(math.fsum(expected.token_log_probs), abs=1e-10)
    assert got.score == pytest.approx(expected.score, abs=SCORE_TOLERANCE if decode.coverage_penalty else 1e-10)
    assert got.hit_limit == expected.hit_limit


@settings(max_examples=300, deadline=None, derandomize=True)
@given(case=cases(beam=True))
def test_a_covering_beam_gives_the_n_best_translations_there_are_under_any_options(case: Case) -> None:
    lines = [Enumeration(case, line) for line in case.lines]
    expected = [line.answers() if line.line.text else None for line in lines]
    refused = {number: refusal(line) for number, line in enumerate(lines, start=1) if line.line.text}
    reasons = [rf"^line {number}\b.*{reason}" for number, reason in refused.items() if reason]
    impossible = [number for number, answers in enumerate(expected, start=1) if answers == []]
    reasons += [f"^line {number} has no translation" for number in impossible]
    translator = case.translator()
    if impossible:
        with pytest.raises(ValueError, match="|".join(reasons)):
            translator.translate(case.lines, case.decode)
        return
    try:
        translations = translator.translate(case.lines, case.decode)
    except ValueError as error:
        if reasons and re.search("|".join(reasons), str(error)):
            return
        raise
    for translation, answers in zip(translations, expected, strict=True):
        if answers is None:
            assert [one.ids for one in translation.candidates] == [()]
            continue
        best = answers[: case.decode.n_best]
        assert [one.ids for one in translation.candidates] == [one.ids for one in best]
        for got, answer in zip(translation.candidates, best, strict=True):
            assert_is(got, answer, case.decode)


def stepwise(line: Enumeration) -> tuple[int, ...] | None:
    """Greedy search written out: of the pieces that may come next the best one; None at a dead end.

    It takes the end of a piece for the end of a word, since it could not come back if no other end were to follow.
    """
    ids = line.given
    while True:
        logits = line.edited(line.logits(ids), ids)
        allowed = [EOS] if line.may_end(ids) else []
        if len(ids) + 1 < line.longest:
            following = [piece for piece in PIECES if piece in logits and line.may_follow(ids, piece)]
            allowed += [piece for piece in following if line.keeps_clear((*ids, piece))]
        if not allowed:
            return None
        piece = max(allowed, key=logits.__getitem__)
        if piece == EOS:
            return (*ids, EOS)
        ids = (*ids, piece)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(case=cases(beam=False))
def test_a_greedy_search_takes_the_best_piece_that_the_options_leave_at_every_step(case: Case) -> None:
    lines = [Enumeration(case, line) for line in case.lines if line.text]
    expected = [stepwise(line) for line in lines]
    dead = [number for number, line in enumerate(case.lines, start=1) if line.text]
    dead = [number for number, ids in zip(dead, expected, strict=True) if ids is None]
    if dead:
        with pytest.raises(ValueError, match=rf"^line ({'|'.join(map(str, dead))}) has no translation"):
            case.translator().translate(case.lines, case.decode)
        return
    translations = [one for one in case.translator().translate(case.lines, case.decode) if one.source]
    for translation, line, ids in zip(translations, lines, expected, strict=True):
        (got,) = translation.candidates
        assert got.ids == ids
        assert got.text == case.tokenizer.decode(ids)
        model = [log_softmax(line.logits(ids[:place]))[piece] for place, piece in enumerate(ids)]
        assert got.token_log_probs == pytest.approx(model, abs=1e-10)
        assert got.log_prob == pytest.approx(math.fsum(model), abs=1e-10)
        assert got.score == pytest.approx(math.fsum(model) / line.divisor(len(ids)), abs=1e-10)
        assert got.hit_limit == (len(ids) == line.longest and not line.forced)
