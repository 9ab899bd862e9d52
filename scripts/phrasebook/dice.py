"""Random draws that are the same on every Python version and for every hash seed."""

import random
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Pair(NamedTuple):
    """The same piece of text in English and in German."""

    en: str
    de: str


EMPTY = Pair("", "")


class Dice:
    """Draws built only on `Random.random()`, the one method whose sequence Python promises to keep for a given seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, limit: int) -> int:
        """A whole number from 0 to limit - 1."""
        return int(self._random.random() * limit)

    def between(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return low + self.below(high - low + 1)

    def pick(self, items: Sequence[T]) -> T:
        """One of the items, each as likely as the others."""
        return items[self.below(len(items))]

    def pick_two(self, items: Sequence[T]) -> tuple[T, T]:
        """Two different items, in random order."""
        first = self.below(len(items))
        second = self.below(len(items) - 1)
        return items[first], items[second + (second >= first)]

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self._random.random() < probability

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in random order (Fisher and Yates)."""
        result = list(items)
        for last in range(len(result) - 1, 0, -1):
            other = self.below(last + 1)
            result[last], result[other] = result[other], result[last]
        return result


def join(*parts: str) -> str:
    """The parts that are not empty, with one space between them."""
    return " ".join(part for part in parts if part)


def sentence(en: str, de: str, mark: str = ".") -> Pair:
    """A finished sentence: a capital letter first, the mark last."""
    return Pair(en[0].upper() + en[1:] + mark, de[0].upper() + de[1:] + mark)
