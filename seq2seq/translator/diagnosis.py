"""What is wrong with a model's translations: the search's share of it, and what other beams and penalties give."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from seq2seq.bundle import Bundle
from seq2seq.config import DecodeConfig, PenaltyForm
from seq2seq.search.agreement import TOLERANCE
from seq2seq.search.length_penalty import LengthPenalty
from seq2seq.text.lines import is_blank
from seq2seq.translator.batches import length_limits
from seq2seq.translator.doctor import plain
from seq2seq.translator.faults import Sentence
from seq2seq.translator.long_lines import longest_target
from seq2seq.translator.rescoring import Pool, rescored
from seq2seq.translator.results import Candidate, Translation
from seq2seq.translator.translator import Translator

NEAR = 0.25
"""A search whose whole beam is kept takes a fifth more time, which pays only where penalties are so close together."""


@dataclass(frozen=True)
class Rival:
    """A translation that the model gives a higher score than what the search has found."""

    place: int
    """Of the line, counted from 0."""
    text: str
    score: float
    found_score: float


@dataclass(frozen=True)
class SearchErrors:
    """How often a search has missed something that scores higher.

    Source:
        Stahlberg and Byrne 2019, arXiv:1908.10090, section 2: the global best has not been found. Deviation: that one
        is not known, so what is counted is a lower bound.
    """

    rivals: Sequence[Rival]
    num_compared: int
    """Lines; those whose rival the search could not have produced are left out."""


def is_plain(decode: DecodeConfig) -> bool:
    """Whether no option changes scores or forbids translations, but for their lengths."""
    return plain(decode) == replace(decode, patience=None) and decode.min_length <= 1 and decode.min_length_factor == 0


def greedy_errors(translator: Translator, answers: Sequence[Translation], decode: DecodeConfig) -> SearchErrors:
    """Lines whose greedy translation scores higher than what was found.

    Args:
        translator: Its model.
        answers: What was found, with these options.
        decode: The options.
    """
    greedy = translator.translate(
        [answer.source for answer in answers],
        replace(decode, beam_size=1, n_best=1, patience=None, coverage_penalty=0.0),
        on_notice=_unheard,
    )
    rivals = [(place, one.text, one.score) for place, one in enumerate(greedy) if one.source_ids]
    return _errors(answers, rivals)


def reference_errors(
    translator: Translator, answers: Sequence[Translation], references: Sequence[str], decode: DecodeConfig
) -> SearchErrors:
    """Lines whose reference scores higher than what was found, where the limits of length allow the reference.

    Args:
        translator: Its model.
        answers: What was found, with these options.
        references: One for each.
        decode: The options.
    """
    bundle = translator.bundle
    eos = bundle.target_tokenizer.special.eos
    places, sources, targets = [], [], []
    for place, (answer, reference) in enumerate(zip(answers, references, strict=True)):
        if len(answer.source_ids) != 1 or is_blank(reference):
            continue
        ids = (*bundle.target_tokenizer.encode(reference), eos)
        if len(ids) <= lengths(bundle, answer, decode)[1]:
            places.append(place)
            sources.append(answer.source_ids[0])
            targets.append(ids)
    scored = translator.score_ids(sources, targets, decode)
    return _errors(
        answers, [(place, references[place], pair.score) for place, pair in zip(places, scored, strict=True)]
    )


def _errors(answers: Sequence[Translation], rivals: Sequence[tuple[int, str, float]]) -> SearchErrors:
    found = []
    for place, text, score in rivals:
        own = answers[place]
        if text != own.text and score > own.score + TOLERANCE * max(1.0, abs(own.score)):
            found.append(Rival(place, text, score, own.score))
    return SearchErrors(found, len(rivals))


def lengths(bundle: Bundle, answer: Translation, decode: DecodeConfig) -> tuple[int, int]:
    """Fewest and most pieces that a translation of this line may have, EOS included."""
    num = len(answer.source_ids[0])
    return length_limits(decode, num, 0, longest_target(bundle.model_config, num))


def sentences(bundle: Bundle, answers: Sequence[Translation], references: Sequence[str]) -> list[Sentence]:
    """The translations beside their references, to look for faults."""
    source, target = bundle.source_tokenizer.special, bundle.target_tokenizer.special
    return [
        Sentence(answer, reference, bundle.target_tokenizer.encode(reference), target.eos, (source.unk, target.unk))
        for answer, reference in zip(answers, references, strict=True)
    ]


@dataclass(frozen=True)
class SweepPoint:
    """What one beam size and length penalty give."""

    beam_size: int
    length_penalty: float
    texts: Sequence[str]
    num_searched: int
    """Lines; the others were told from a search under another penalty."""


class _ByPieces(Translator):
    """Keeps hypotheses apart that read the same, of which a translator otherwise keeps the best one."""

    def _text(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))


def sweep(
    bundle: Bundle,
    lines: Sequence[str],
    decode: DecodeConfig,
    beam_sizes: Sequence[int],
    length_penalties: Sequence[float],
    on_lines: Callable[[int], None] = lambda count: None,
) -> Iterator[SweepPoint]:
    """The translations under every beam size and length penalty, without searching again where that is needless.

    A greedy search finds the same under every penalty. For beams see `rescoring`.

    Args:
        bundle: The model and its tokenizers.
        lines: Source text.
        decode: All other options; its form of the penalty, or `gnmt` where that is `none`.
        beam_sizes: As many as wanted.
        length_penalties: Exponents.
        on_lines: Told how many lines have been done.
    """
    if decode.penalty_form is PenaltyForm.none:
        decode = replace(decode, penalty_form=PenaltyForm.gnmt)
    for beam_size in beam_sizes:
        options = replace(decode, beam_size=beam_size, n_best=1)
        if beam_size == 1:
            options = replace(options, patience=None, coverage_penalty=0.0)
        beam = _Beam(bundle, lines, options, length_penalties)
        for exponent in length_penalties:
            yield beam.point(exponent)
            on_lines(len(lines))


class _Beam:
    """One beam size, under one penalty after the other."""

    def __init__(self, bundle: Bundle, lines: Sequence[str], decode: DecodeConfig, exponents: Sequence[float]) -> None:
        self._bundle, self._lines, self._decode = bundle, lines, decode
        pays = any(abs(other - one) <= NEAR for one, other in pairwise(exponents))
        self._rescores = pays and is_plain(decode) and decode.patience is None
        self._pools: list[list[Pool]] = [[] for _ in lines]
        self._texts: list[str | None] = [None] * len(lines)

    def point(self, exponent: float) -> SweepPoint:
        """The translations under this penalty."""
        penalty = LengthPenalty(self._decode.penalty_form, exponent)
        if self._decode.beam_size > 1:
            self._texts = [self._told(pools, penalty) for pools in self._pools]
        missing = [place for place, text in enumerate(self._texts) if text is None]
        decode = replace(self._decode, length_penalty=exponent)
        if self._rescores and decode.beam_size > 1:
            self._search_pools(missing, decode, penalty)
        else:
            self._search(missing, decode)
        texts = [text for text in self._texts if text is not None]
        return SweepPoint(decode.beam_size, exponent, texts, len(missing))

    def _told(self, pools: Sequence[Pool], penalty: LengthPenalty) -> str | None:
        """The translation, if it can be told from one of the pools."""
        found = (rescored(pool, penalty) for pool in pools)
        return next((self._text(one) for one in found if one is not None), None)

    def _search(self, places: Sequence[int], decode: DecodeConfig) -> None:
        """Find the translations of these lines."""
        found = Translator(self._bundle).translate([self._lines[at] for at in places], decode, on_notice=_unheard)
        for place, answer in zip(places, found, strict=True):
            self._texts[place] = answer.text

    def _search_pools(self, places: Sequence[int], decode: DecodeConfig, penalty: LengthPenalty) -> None:
        """Find the translations of these lines, with all that the beam holds; lines in several parts one by one."""
        decode, lines = replace(decode, n_best=decode.beam_size), [self._lines[at] for at in places]
        split = []
        found = _ByPieces(self._bundle).translate(lines, decode, on_notice=_unheard)
        for place, answer in zip(places, found, strict=True):
            if len(answer.source_ids) > 1:
                split.append(place)
                continue
            self._texts[place] = self._text(answer.candidates[0])
            if answer.source_ids:
                full = len(answer.candidates) == decode.n_best
                limits = lengths(self._bundle, answer, decode)
                self._pools[place].append(Pool(answer.candidates, full, penalty, limits))
        self._search(split, replace(decode, n_best=1))

    def _text(self, candidate: Candidate) -> str:
        return self._bundle.target_tokenizer.decode(candidate.ids).replace("\r", " ")


def _unheard(notice: str) -> None:
    """Nothing: that a line was cut is told where it is translated first."""
