"""Phrases that no hypothesis contains, in whatever pieces it spells them."""

import codecs
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seq2seq.search.hypotheses import SearchLimits
from seq2seq.search.rules import Rows
from seq2seq.shapes import Bool, Float, Int, Tensor
from seq2seq.text.phrase_automaton import OTHER, PhraseAutomaton

State = tuple[int, bytes]
"""State of a `PhraseAutomaton`, and the first bytes of a character that is not complete."""

START: State = (0, b"")


class SpelledPieces:
    """The pieces of a vocabulary as characters.

    Args:
        spelled: The bytes that each piece adds to a text, by its number.

    Attributes:
        spelled: The same.
        whole: Numbers of the pieces that are whole characters, at least one, longest first.
        characters: The n-th characters of those of them that have so many, in the same order.
        broken: Numbers of the pieces that begin or end inside a character.
    """

    def __init__(self, spelled: Sequence[bytes]) -> None:
        self.spelled = list(spelled)
        texts = {number: _text(piece) for number, piece in enumerate(spelled) if piece}
        self.broken = [number for number, text in texts.items() if text is None]
        whole = {number: text for number, text in texts.items() if text is not None}
        in_order = sorted(whole, key=lambda number: -len(whole[number]))
        self.whole: Int[np.ndarray, " M"] = np.array(in_order, dtype=np.int64)
        longest = len(whole[in_order[0]]) if in_order else 0
        self.characters = [
            [whole[number][at] for number in in_order if at < len(whole[number])] for at in range(longest)
        ]


def _text(piece: bytes) -> str | None:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True)
class _Next:
    """What every piece of the vocabulary leads to from one state."""

    states: Int[np.ndarray, " V"]
    """Of the automaton."""
    begun: dict[int, bytes]
    """By piece, the bytes of a character that it leaves incomplete."""
    hits: Bool[np.ndarray, " V"]
    """Whether a phrase is complete by it."""

    def state(self, piece: int) -> State:
        return int(self.states[piece]), self.begun.get(piece, b"")


@dataclass(frozen=True)
class View:
    """What may follow in a state.

    Attributes:
        may_end: Whether a hypothesis may end here.
        forbidden: Pieces that would complete a phrase.
        late: Other pieces behind which a hypothesis must not end, for a phrase would be complete.
        needed: Pieces that have to come behind each of those, EOS included; infinite if it could never end.
    """

    may_end: bool
    forbidden: Int[np.ndarray, " F"]
    late: Int[np.ndarray, " L"]
    needed: Float[np.ndarray, " L"]


class PhrasePieces:
    """Which pieces of a vocabulary would complete a phrase, worked out once for each state that is asked for.

    Args:
        automaton: Knows what is not to be spelled.
        pieces: The vocabulary.
    """

    def __init__(self, automaton: PhraseAutomaton, pieces: SpelledPieces) -> None:
        self._automaton = automaton
        self._pieces = pieces
        self._classes = [
            np.array([self._automaton.class_of(character) for character in column]) for column in pieces.characters
        ]
        self._views: dict[State, View] = {}
        self._needs: dict[State, float] = {}
        self._followed: dict[tuple[State, int], State] = {}

    def after(self, state: State, piece: int) -> State:
        """The state after one more piece, whether or not it completes a phrase."""
        found = self._followed.get((state, piece))
        if found is None:
            found = self._followed[state, piece] = self._read(state, self._pieces.spelled[piece])[0]
        return found

    def view(self, state: State) -> View:
        """What may follow in a state."""
        found = self._views.get(state)
        if found is None:
            next_ = self._next(state)
            late = np.flatnonzero(self._automaton.whole[next_.states] & ~next_.hits)
            needed = [self._needed(next_.state(piece)) for piece in late.tolist()]
            found = View(
                may_end=self._needed(state) == 1,
                forbidden=np.flatnonzero(next_.hits),
                late=late,
                needed=np.array(needed, dtype=np.float64),
            )
            self._views[state] = found
        return found

    def _needed(self, state: State) -> float:
        """Fewest pieces, EOS included, by which a hypothesis can end from this state; infinite if it cannot."""
        if state not in self._needs:
            count, seen, front = 1.0, {state}, {state}
            while front and all(self._automaton.whole[place] for place, _ in front):
                reached = set()
                for next_ in map(self._next, front):
                    reached |= {next_.state(piece) for piece in _distinct(next_)}
                front = reached - seen
                seen |= front
                count += 1
            self._needs[state] = count if front else math.inf
        return self._needs[state]

    def _next(self, state: State) -> _Next:
        """What every piece leads to; those that spell nothing to the same state."""
        place, begun = state
        automaton, count = self._automaton, len(self._pieces.spelled)
        states = np.full(count, place)
        hits = np.zeros(count, dtype=np.bool_)
        left = dict.fromkeys(range(count), begun) if begun else {}
        found = np.full(len(self._pieces.whole), place)
        hit = np.zeros(len(found), dtype=np.bool_)
        if begun:  # they are no character then
            hit[:] = automaton.hits[place, OTHER]
            found[:] = automaton.follow[place, OTHER]
        for classes in self._classes:
            some = found[: len(classes)]
            hit[: len(classes)] |= automaton.hits[some, classes]
            found[: len(classes)] = automaton.follow[some, classes]
        states[self._pieces.whole], hits[self._pieces.whole] = found, hit
        for piece in self._pieces.whole.tolist() if begun else ():
            del left[piece]
        for piece in self._pieces.broken:
            (states[piece], left[piece]), hits[piece] = self._read(state, self._pieces.spelled[piece])
        return _Next(states, left, hits)

    def _read(self, state: State, spelled: bytes) -> tuple[State, bool]:
        """The state after more bytes, and whether a phrase is complete by them."""
        if not spelled:
            return state, False
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(state[1] + spelled)
        place, hit = self._automaton.read(state[0], text)
        return (place, decoder.getstate()[0]), hit


def _distinct(next_: _Next) -> list[int]:
    """For each state that allowed pieces lead to a piece that does."""
    allowed = np.flatnonzero(~next_.hits)
    pieces: list[int] = allowed[np.unique(next_.states[allowed], return_index=True)[1]].tolist()
    return [*pieces, *(piece for piece in next_.begun if not next_.hits[piece])]


class ForbiddenPhrases:
    """No hypothesis spells a phrase as whole words, in whatever pieces.

    What would complete it is forbidden, and that is known when the words end: "cat" is forbidden by forbidding what is
    no letter, and EOS, behind its letters, so that "cats" remains possible. A piece behind which a hypothesis could not
    end before its maximum length is forbidden too, so this rule does not lead to dead ends. What a forced prefix has of
    a phrase counts; a phrase that is whole inside the prefix is let pass.

    A search with a single hypothesis has no way back: once it has "cat", which was to be followed by a space, it would
    go on with the least bad letters. It is to be cautious, and to take the end of a piece for the end of a word. Then
    "cats" is still possible in pieces such as "ca" and "ts", but no longer in "cat" and "s".

    Args:
        pieces: Knows phrases and vocabulary.
        limits: Ends and maximum lengths.
        cautious: Whether to forbid whatever spells a phrase at the end of a piece.
    """

    def __init__(self, pieces: PhrasePieces, limits: SearchLimits, *, cautious: bool) -> None:
        self._pieces = pieces
        self._cautious = cautious
        self._ends = np.array(limits.ends)
        self._longest = np.array(limits.max_lengths)
        self._states: dict[bytes, State] = {}

    def __call__(self, rows: Rows, log_probs: Float[Tensor, "R V"]) -> None:
        """Forbid the pieces that would complete a phrase."""
        left = self._longest[rows.sentences.numpy()] - rows.length - 1
        members: dict[State, list[int]] = {}
        for row, state in enumerate(self._follow(rows)):
            if left[row] > 0:
                members.setdefault(state, []).append(row)
        found: list[tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]]] = []
        for state, of_state in members.items():
            view, here = self._pieces.view(state), np.array(of_state)
            forbidden = view.forbidden if view.may_end else np.concatenate([view.forbidden, self._ends])
            found.append((here.repeat(len(forbidden)), np.tile(forbidden, len(here))))
            room = np.ones_like(here) if self._cautious else left[here]
            late = (view.needed > room[:, None]).nonzero()
            found.append((here[late[0]], view.late[late[1]]))
        if any(len(chosen) for chosen, _ in found):
            chosen, pieces = (torch.from_numpy(np.concatenate(side)) for side in zip(*found, strict=True))
            log_probs[chosen.to(log_probs.device), pieces.to(log_probs.device)] = -torch.inf

    def _follow(self, rows: Rows) -> list[State]:
        """The state that each row's pieces lead to, worked out from the rows that they continue."""
        ids = rows.ids.numpy()
        known: dict[bytes, State] = {}
        states = []
        for row in ids:
            key = row.tobytes()
            state = known.get(key)
            if state is None:
                state = self._states.get(row[:-1].tobytes()) if len(row) else START
                if state is not None and len(row):
                    state = self._pieces.after(state, int(row[-1]))
                elif state is None:
                    state = START
                    for piece in row.tolist():
                        state = self._pieces.after(state, piece)
                known[key] = state
            states.append(state)
        self._states = known
        return states
