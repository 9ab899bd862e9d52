"""Which pieces a search chooses from: all of the model's, or a shortlist of them for one batch."""

from collections.abc import Iterable, Sequence


class Vocabulary:
    """Numbers the pieces that a search may produce.

    A search, its limits and its rules know these numbers alone. With a shortlist the columns of the logits are those
    of the shortlist, and a piece's number is its place there; without one, numbers are the model's ids.

    Args:
        shortlist: Ids in ascending order; None for all.
    """

    def __init__(self, shortlist: Sequence[int] | None = None) -> None:
        self.shortlist = shortlist
        self._numbers = None if shortlist is None else {id_: number for number, id_ in enumerate(shortlist)}

    def number(self, id_: int) -> int | None:
        """The piece's number; None if it is not in the shortlist, so that it cannot be produced."""
        return id_ if self._numbers is None else self._numbers.get(id_)

    def numbers(self, ids: Iterable[int]) -> list[int] | None:
        """The pieces' numbers; None if one of them is not in the shortlist, so that they cannot come together."""
        if self._numbers is None:
            return list(ids)
        found = [self._numbers.get(id_) for id_ in ids]
        return None if None in found else [number for number in found if number is not None]

    def ids(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """The model's ids of numbers."""
        if self.shortlist is None:
            return tuple(numbers)
        return tuple(self.shortlist[number] for number in numbers)
