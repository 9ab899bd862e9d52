"""Finding phrases in a text that is read character by character."""

from collections import deque
from collections.abc import Iterable

import numpy as np

from seq2seq.shapes import Bool, Int
from seq2seq.text.words import in_word

IN_WORD, SPACE, OTHER = range(3)
"""Classes of the characters that no phrase has: letters and the like (`in_word`), white space, all others."""

_WORD_END = -1
"""Stands between two characters that do not belong to one word, and at the ends of a text."""


class PhraseAutomaton:
    """Tells after each character of a text whether a phrase has stood in it as whole words.

    That a phrase is whole is known one character later, or at the end of the text. Several spaces count as one. Where a
    phrase begins or ends with a character that no word needs (punctuation, Chinese), it is whole whatever is beside it.

    Source:
        Aho and Corasick 1975, "Efficient string matching", with a mark at each place where a word may begin or end as
        one more symbol, in the text and around each phrase.

    Args:
        phrases: What to look for.

    Attributes:
        follow: [N, C], the state after a character of each class is read in a state. Reading begins in state 0.
        hits: [N, C], whether a phrase turns out to be whole by that.
        whole: [N], whether a phrase is whole if the text ends here.
    """

    follow: Int[np.ndarray, "N C"]
    hits: Bool[np.ndarray, "N C"]
    whole: Bool[np.ndarray, " N"]

    def __init__(self, phrases: Iterable[str]) -> None:
        texts = [" ".join(phrase.split()) for phrase in phrases]
        characters = sorted(set("".join(texts)) - {" "})
        self._classes = {" ": SPACE} | {character: at + 3 for at, character in enumerate(characters)}
        kinds = [IN_WORD, SPACE, OTHER, *(IN_WORD if in_word(character) else OTHER for character in characters)]
        trie = _Trie([self._marked(text) for text in texts])
        places = {(0, SPACE): 0}  # spaces at the start of a text do not count
        queue = deque(places)
        follow, hits, whole = [], [], []
        while queue:
            node, before = queue.popleft()
            ended = trie.read(node, _WORD_END)
            whole.append(trie.complete[ended])
            row, hit = [], []
            for class_, kind in enumerate(kinds):
                apart = not before == kind == IN_WORD
                if before == kind == SPACE:
                    apart, target = False, (node, before)
                else:
                    target = trie.read(ended if apart else node, class_), kind
                if target not in places:
                    places[target] = len(places)
                    queue.append(target)
                row.append(places[target])
                hit.append(apart and trie.complete[ended])
            follow.append(row)
            hits.append(hit)
        self.follow, self.hits, self.whole = np.array(follow), np.array(hits), np.array(whole)

    def class_of(self, character: str) -> int:
        """The class that a character belongs to: its own if a phrase has it."""
        if character.isspace():
            return SPACE
        return self._classes.get(character, IN_WORD if in_word(character) else OTHER)

    def read(self, state: int, text: str) -> tuple[int, bool]:
        """The state after more text, and whether a phrase has turned out to be whole by that."""
        hit = False
        for character in text:
            class_ = self.class_of(character)
            hit = hit or bool(self.hits[state, class_])
            state = int(self.follow[state, class_])
        return state, hit

    def is_in(self, text: str) -> bool:
        """Whether a phrase stands in a text as whole words."""
        state, hit = self.read(0, text)
        return hit or bool(self.whole[state])

    def _marked(self, text: str) -> list[int]:
        """The classes of a phrase's characters, with the places where words may begin or end."""
        symbols = [_WORD_END]
        for before, character in zip(text, text[1:] + " ", strict=True):
            symbols.append(self.class_of(before))
            if not (in_word(before) and in_word(character)):
                symbols.append(_WORD_END)
        return symbols


class _Trie:
    """All beginnings of sequences, each a node; 0 is the empty one."""

    def __init__(self, sequences: Iterable[list[int]]) -> None:
        self._next: list[dict[int, int]] = [{}]
        self.complete = [False]
        """Whether the symbols read last are a sequence."""
        for symbols in sequences:
            node = 0
            for symbol in symbols:
                if symbol not in self._next[node]:
                    self._next[node][symbol] = len(self._next)
                    self._next.append({})
                    self.complete.append(False)
                node = self._next[node][symbol]
            self.complete[node] = True
        self._shorter = [0] * len(self._next)
        """The longest other node that the symbols read last end with."""
        queue = deque(self._next[0].values())
        while queue:
            node = queue.popleft()
            self.complete[node] = self.complete[node] or self.complete[self._shorter[node]]
            for symbol, longer in self._next[node].items():
                self._shorter[longer] = self.read(self._shorter[node], symbol)
                queue.append(longer)

    def read(self, node: int, symbol: int) -> int:
        """The longest node that the symbols end with."""
        while symbol not in self._next[node] and node:
            node = self._shorter[node]
        return self._next[node].get(symbol, 0)
