"""Phrases that hypotheses must contain before they may end."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from seq2seq.search.rules import Rows
from seq2seq.shapes import Float, Tensor


@dataclass(frozen=True)
class Spelling:
    """One way to write a phrase."""

    pieces: tuple[int, ...]
    """Numbers of the pieces; at least one."""
    whole_start: bool = False
    """Whether it must not go on with a word that the piece before it has left open."""
    whole_end: bool = False
    """Whether no word must go on behind it."""


Phrase = tuple[Spelling, ...]
"""The ways to write a phrase, one of which is enough."""


@dataclass(frozen=True)
class WordPieces:
    """Which pieces can be joined to one word where they follow one another."""

    opening: Container[int] = frozenset()
    """Pieces that end in a word, which the next piece may go on with."""
    continuing: Container[int] = frozenset()
    """Pieces that go on with a word that the piece before has left open."""


class _Match(NamedTuple):
    """A phrase that has begun, or that has all its pieces and waits for what comes behind it."""

    phrase: int
    spelling: int
    length: int
    """Pieces that are there."""


class _State(NamedTuple):
    """What a hypothesis has."""

    counts: tuple[int, ...]
    """How often it has each phrase."""
    matches: frozenset[_Match]
    """Of phrases that it does not have often enough."""
    in_word: bool
    """Whether its last piece ends in a word."""


class Constraints:
    """Holds hypotheses back from ending until they contain the phrases of their sentence; a `Progress`.

    A hypothesis contains a phrase if the pieces of one of its spellings stand in it in a row, as whole words where the
    spelling says so. A phrase that is given several times must come so often, at places that do not overlap. Different
    phrases may overlap: who has "New York" has "York", too. In order, each phrase begins behind the end of the one
    before.

    What a hypothesis has is told by its pieces alone: the pieces of every phrase that it contains, and of one more that
    its last pieces have begun, the longest. If that is not gone on with, or a word goes on behind a phrase that ends in
    whole words, it is lost. A phrase counts as many pieces as its longest spelling. As long as a spelling of each
    phrase may begin behind any piece, every hypothesis can get one piece more by one that is `wanted`. So a beam of any
    size, of which those that have most always get a place, finds one with all phrases if the maximum length has room
    for their longest spellings and EOS, and no rule forbids them.

    Source:
        Post and Vilar 2018, arXiv:1804.06609, section 3. Deviations: theirs takes a phrase that has begun for the only
        one that can go on, and does not know whole words, order or several spellings. Here all that have begun are
        followed together, so that no hypothesis which contains the phrases is held back.

    Args:
        phrases: For each sentence what it must contain.
        ends: Numbers that end a hypothesis, EOS first.
        words: Which pieces can be one word.
        ordered: Whether phrases must come in the order in which they are given.
    """

    def __init__(
        self,
        phrases: Sequence[Sequence[Phrase]],
        ends: Sequence[int],
        *,
        words: WordPieces | None = None,
        ordered: bool = False,
    ) -> None:
        self._ends = list(ends)
        words = words or WordPieces()
        self._sentences = [_Tracker(wanted, words, ordered=ordered) for wanted in phrases]
        self._known: dict[int, dict[tuple[int, tuple[int, ...]], int]] = {}

    def __call__(self, rows: Rows, log_probs: Float[Tensor, "R V"]) -> None:
        """Forbid the end to hypotheses that do not have everything."""
        early = [row for row, tracker, state in self._followed(rows) if tracker.value(state) < tracker.total]
        if early:
            places = torch.tensor(early, device=log_probs.device)
            for end in self._ends:
                log_probs[places, end] = -torch.inf

    def wanted(self, rows: Rows) -> list[list[int]]:
        """For each row the pieces by which a phrase begins or goes on, and EOS where everything is there.

        EOS is among them because it is the one piece that certainly does not go on with the last word.
        """
        found: list[list[int]] = [[] for _ in range(len(rows.sentences))]
        for row, tracker, state in self._followed(rows):
            found[row] = tracker.wanted(state) if tracker.value(state) < tracker.total else self._ends[:1]
        return found

    def met(self, sentence: int, ids: Sequence[int]) -> int:
        """How many pieces of phrases the hypothesis has; 0 for a sentence that must contain nothing."""
        tracker = self._sentences[sentence]
        if not tracker.total:
            return 0
        if not len(ids):
            return tracker.value(START)
        return tracker.value(tracker.after(self._state(sentence, tuple(ids[:-1])), ids[-1]))

    def total(self, sentence: int) -> int:
        """What `met` is for a hypothesis that has everything."""
        return self._sentences[sentence].total

    def shortest_rest(self, sentence: int, ids: Sequence[int]) -> int:
        """How many pieces the hypothesis still needs, in the shortest spellings, if no two phrases overlap."""
        return self._sentences[sentence].shortest_rest(self._state(sentence, tuple(ids)))

    def _followed(self, rows: Rows) -> Iterator[tuple[int, "_Tracker", int]]:
        """Each row whose sentence has phrases, and its state."""
        held = [(row, sentence) for row, sentence in enumerate(rows.sentences.tolist()) if self.total(sentence)]
        ids = rows.ids.tolist() if held else []
        for row, sentence in held:
            yield row, self._sentences[sentence], self._state(sentence, tuple(ids[row]))

    def _state(self, sentence: int, ids: tuple[int, ...]) -> int:
        """The state of a hypothesis, worked out from that of the one that it continues if that is still known."""
        known = self._known.setdefault(len(ids), {})
        state = known.get((sentence, ids))
        if state is None:
            tracker = self._sentences[sentence]
            state = self._known.get(len(ids) - 1, {}).get((sentence, ids[:-1]))
            if state is not None:
                state = tracker.after(state, ids[-1])
            else:
                state = START
                for piece in ids:
                    state = tracker.after(state, piece)
            known[sentence, ids] = state
            for length in [length for length in self._known if length < len(ids) - 1]:
                del self._known[length]
        return state


START = 0
"""State of a hypothesis without pieces."""


class _Tracker:
    """Follows what hypotheses of one sentence have, from state to state. States are numbered as they come up."""

    def __init__(self, wanted: Sequence[Phrase], words: WordPieces, *, ordered: bool) -> None:
        for phrase in wanted:
            assert phrase, "a phrase has a spelling"
            assert all(spelling.pieces for spelling in phrase), "a spelling has pieces"
        self._phrases = list(wanted) if ordered else list(dict.fromkeys(wanted))
        self._times = [1 if ordered else list(wanted).count(phrase) for phrase in self._phrases]
        self._worth = [max(len(spelling.pieces) for spelling in phrase) for phrase in self._phrases]
        self._own = {piece for phrase in wanted for spelling in phrase for piece in spelling.pieces}
        self._words = words
        self._ordered = ordered
        self.total = sum(times * worth for times, worth in zip(self._times, self._worth, strict=True))
        self._states: list[_State] = []
        self._values: list[int] = []
        self._numbers: dict[_State, int] = {}
        self._followed: dict[tuple[int, int], int] = {}
        self._number(_State((0,) * len(self._phrases), frozenset(), in_word=False))

    def after(self, state: int, piece: int) -> int:
        """The state when that piece has followed."""
        found = self._followed.get((state, piece))
        if found is None:
            like = self._like(piece)
            found = self._followed.get((state, like))
            if found is None:
                found = self._followed[state, like] = self._number(self._follow(self._states[state], piece))
            self._followed[state, piece] = found
        return found

    def _like(self, piece: int) -> int:
        """The piece itself if a phrase has it, else a number for all that no phrase has and that are joined alike."""
        return (
            piece if piece in self._own else -1 - (piece in self._words.opening) - 2 * (piece in self._words.continuing)
        )

    def value(self, state: int) -> int:
        """Pieces that a hypothesis has which might end here."""
        return self._values[state]

    def _number(self, state: _State) -> int:
        if state not in self._numbers:
            self._numbers[state] = len(self._states)
            self._states.append(state)
            self._values.append(self._value(state))
        return self._numbers[state]

    def _follow(self, state: _State, piece: int) -> _State:
        """What a hypothesis has when that piece has followed."""
        counts = list(state.counts) if piece in self._words.continuing else self._confirmed(state)
        # What began inside an occurrence that has now been counted overlaps it.
        matches = {
            match._replace(length=match.length + 1)
            for match in state.matches
            if self._next(match) == piece and counts[match.phrase] == state.counts[match.phrase]
        }
        for phrase in range(len(self._phrases)):
            if self._is_open(phrase, counts):
                matches |= {
                    _Match(phrase, number, 1)
                    for number, spelling in enumerate(self._phrases[phrase])
                    if spelling.pieces[0] == piece and not (spelling.whole_start and state.in_word)
                }
        # The others that are complete wait for the next piece.
        whole = {
            match.phrase
            for match in matches
            if self._next(match) is None and not self._phrases[match.phrase][match.spelling].whole_end
        }
        for phrase in whole:
            counts[phrase] += 1
        left = frozenset(match for match in matches if match.phrase not in whole)
        return _State(tuple(counts), left, piece in self._words.opening)

    def _value(self, state: _State) -> int:
        """Pieces that the hypothesis has, such that there is always one that it would have one more by.

        Either no word goes on behind what waits for that, or one does: what has begun counts where it agrees.
        """
        confirmed = self._confirmed(state)
        apart = self._longest_begun(state, confirmed, joined=False)
        joined = self._longest_begun(state, state.counts, joined=True)
        return max(self._worth_of(confirmed) + apart, self._worth_of(state.counts) + joined)

    def _longest_begun(self, state: _State, counts: Sequence[int], *, joined: bool) -> int:
        """Pieces of the longest phrase that has begun and goes on with a piece that goes on with a word, or not."""
        return max(
            (
                match.length
                for match in state.matches
                if self._next(match) is not None
                and (self._next(match) in self._words.continuing) == joined
                and counts[match.phrase] == state.counts[match.phrase]
            ),
            default=0,
        )

    def _worth_of(self, counts: Sequence[int]) -> int:
        return sum(count * worth for count, worth in zip(counts, self._worth, strict=True))

    def shortest_rest(self, number: int) -> int:
        """Pieces that complete what has begun, the one phrase that is nearest to its end, and all that has not."""
        state = self._states[number]
        counts = self._confirmed(state)
        fresh = [min(len(spelling.pieces) for spelling in phrase) for phrase in self._phrases]
        gains = [
            fresh[match.phrase] - len(self._phrases[match.phrase][match.spelling].pieces) + match.length
            for match in state.matches
            if counts[match.phrase] == state.counts[match.phrase]
        ]
        missing = zip(self._times, counts, fresh, strict=True)
        return sum((times - count) * pieces for times, count, pieces in missing) - max([0, *gains])

    def wanted(self, number: int) -> list[int]:
        """Pieces by which phrases begin or go on."""
        state = self._states[number]
        counts = self._confirmed(state)
        going_on = [self._next(match) for match in state.matches if self._is_open(match.phrase, counts)]
        begun = [
            spelling.pieces[0]
            for phrase in range(len(self._phrases))
            if self._is_open(phrase, counts)
            for spelling in self._phrases[phrase]
            if not (spelling.whole_start and state.in_word)
        ]
        return sorted({piece for piece in [*going_on, *begun] if piece is not None})

    def _confirmed(self, state: _State) -> list[int]:
        """How often the hypothesis has each phrase if no word goes on behind it."""
        counts = list(state.counts)
        for phrase in {match.phrase for match in state.matches if self._next(match) is None}:
            counts[phrase] += 1
        return counts

    def _next(self, match: _Match) -> int | None:
        """The piece that a phrase goes on with; None if all are there."""
        pieces = self._phrases[match.phrase][match.spelling].pieces
        return pieces[match.length] if match.length < len(pieces) else None

    def _is_open(self, phrase: int, counts: Sequence[int]) -> bool:
        """Whether the phrase is still to come, and now."""
        missing = counts[phrase] < self._times[phrase]
        return missing and (not self._ordered or phrase == sum(counts))
