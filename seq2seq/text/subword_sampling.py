"""Random segmentations for training: subword sampling (unigram) and BPE-dropout, as functions of a key.

SentencePiece can sample too, but from one generator a thread that no caller can set for each sentence, so its draws
depend on what was encoded before. Here every draw comes from a generator made of (seed, epoch, sentence), whatever the
order of calls and whichever process makes them; that is what lets a resumed run continue exactly.
"""

import itertools
import math
import random
import re
from collections.abc import Callable, Sequence

import sentencepiece

SPACE = "\u2581"
"""The visible sign that stands for a space in pieces."""

Key = tuple[int, int, int]
"""Seed, epoch, and index of the sentence."""


def generator(key: Key) -> random.Random:
    """A generator that depends on the key only, and differs in every part of it.

    Only its ``random()`` is used: of Python's generators that method alone is promised to stay the same.
    """
    return random.Random("/".join(map(str, key)))


class UnigramSampler:
    """Draws among the best segmentations of a line with probability proportional to P^alpha.

    Source:
        Kudo (2018), "Subword Regularization", arXiv:1804.10959, section 3.2, l-best sampling:
        P(x_i | X) ~ P(x_i)^alpha over the l best x_i. Deviation: user-defined symbols, which the lattice may split,
        stay whole, as they do without sampling.
    """

    def __init__(self, processor: sentencepiece.SentencePieceProcessor, user_defined: frozenset[int]):
        self._processor = processor
        self._user_defined = user_defined
        # Characters outside the vocabulary are in every segmentation, so what they add cancels out.
        self._log_probs = [float(processor.get_score(id_)) for id_ in range(processor.vocab_size())]

    def sample(self, line: str, alpha: float, num_best: int, key: Key) -> list[int]:
        """Ids of one segmentation among the `num_best` best."""
        candidates: list[list[int]] = self._processor.nbest_encode(line, nbest_size=num_best, out_type=int)
        if self._user_defined:
            best = self._symbols(candidates[0])
            candidates = [ids for ids in candidates if self._symbols(ids) == best]
        log_prob = self._log_probs.__getitem__
        weights = [alpha * sum(map(log_prob, ids)) for ids in candidates]
        return candidates[_draw(weights, generator(key).random())]

    def _symbols(self, ids: list[int]) -> list[int]:
        return [id_ for id_ in ids if id_ in self._user_defined]


class BpeDropout:
    """Splits a line by byte-pair merges of which some, drawn at random at every step, are not applied.

    Source:
        Provilkov et al. (2020), "BPE-Dropout", arXiv:1910.13267, algorithm 1. Each possible merge (a pair of neighbours
        at one place) is left out with probability p, anew at every step; the best of the rest is applied, until none
        is left. Deviation: none; without dropout the result is SentencePiece's own.
    """

    def __init__(
        self, processor: sentencepiece.SentencePieceProcessor, user_defined: frozenset[int], byte_fallback: bool
    ):
        self._processor = processor
        self._byte_fallback = byte_fallback
        self._unknown = int(processor.unk_id())
        ids = range(processor.vocab_size())
        text_ids = [i for i in ids if not (processor.is_control(i) or processor.is_unknown(i) or processor.is_byte(i))]
        self._ids = {str(processor.id_to_piece(i)): i for i in text_ids}
        self._priority = {str(processor.id_to_piece(i)): float(processor.get_score(i)) for i in text_ids}
        # No merge crosses a space unless a piece has one inside: then words can be split one by one.
        merges_in_words = all(SPACE not in piece[1:] for piece in self._ids if self._ids[piece] not in user_defined)
        symbols = sorted((str(processor.id_to_piece(i)) for i in user_defined), key=len, reverse=True)
        whole = [re.escape(symbol) for symbol in symbols]
        self._parts = re.compile(
            "|".join([*(f"({symbol})" for symbol in whole), self._word_pattern(whole, merges_in_words)]), re.DOTALL
        )

    @staticmethod
    def _word_pattern(whole: Sequence[str], merges_in_words: bool) -> str:
        """A stretch of text that no user-defined symbol interrupts, cut before each space if merges allow it."""
        character = f"[^{SPACE}]" if merges_in_words else "."
        guarded = f"(?:(?!{'|'.join(whole)}){character})" if whole else character
        return f"{SPACE}{guarded}*|{guarded}+"

    def sample(self, line: str, dropout: float, key: Key) -> list[int]:
        """Ids of a segmentation drawn with probability `dropout` of leaving out each merge."""
        draw = generator(key).random
        ids: list[int] = []
        for part in self._parts.finditer(self._processor.normalize(line)):
            text = part[0]
            pieces = [text] if part.lastindex else merge(list(text), self._priority, dropout, draw)
            for piece in pieces:
                ids.extend(self._spelled(piece, ids))
        return ids

    def _spelled(self, piece: str, before: list[int]) -> list[int]:
        known = self._ids.get(piece)
        if known is not None:
            return [known]
        if self._byte_fallback:
            return [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in piece.encode("utf-8")]
        # SentencePiece writes a run of unknown characters as one unknown piece.
        return [] if before and before[-1] == self._unknown else [self._unknown]


def merge(symbols: list[str], priority: dict[str, float], dropout: float, draw: Callable[[], float]) -> list[str]:
    """The symbols after byte-pair merging, the leftmost of equally good merges first.

    Args:
        symbols: Characters to begin with; changed in place.
        priority: Score of every piece; the merge that makes the piece with the highest is applied first.
        dropout: Probability that a possible merge is left out at a step.
        draw: Gives uniform numbers in [0, 1).
    """
    scores = [priority.get(left + right) for left, right in itertools.pairwise(symbols)]
    while True:
        best_place, best_score = -1, -math.inf
        for place, score in enumerate(scores):
            if score is not None and (dropout == 0 or draw() >= dropout) and score > best_score:
                best_place, best_score = place, score
        if best_place < 0:
            return symbols
        symbols[best_place : best_place + 2] = [symbols[best_place] + symbols[best_place + 1]]
        del scores[best_place]
        for place in (best_place - 1, best_place):
            if 0 <= place < len(scores):
                scores[place] = priority.get(symbols[place] + symbols[place + 1])


def _draw(weights: list[float], uniform: float) -> int:
    """Index drawn with probability proportional to exp(weight)."""
    top = max(weights)
    masses = [math.exp(weight - top) for weight in weights]
    left = uniform * sum(masses)
    for index, mass in enumerate(masses):
        left -= mass
        if left < 0:
            return index
    return 0  # rounding left a crumb beyond the last candidate: take the best
