"""Arithmetic with the letters of `seq2seq.shapes`: sizes and formulas as people write them, and their values."""

import re
from collections.abc import Mapping, Sequence

MEANINGS = {
    "B": "sentences",
    "S": "source pieces",
    "T": "target pieces",
    "U": "predicted positions",
    "P": "prompt pieces (the source without its EOS)",
    "D": "model width",
    "H": "query heads",
    "G": "key/value heads",
    "K": "head width",
    "F": "feed-forward width",
    "V": "pieces in the vocabulary",
    "N": "layers",
    "M": "learned positions",
}
"""What each letter stands for, in the order in which they are told."""

_FACTOR = re.compile(r"(\d+|[A-Z])(?:\^(\d+))?")


def value_of(formula: str, letters: Mapping[str, int]) -> int:
    """The number that a sum of products stands for.

    Args:
        formula: For example ``HK+2GK``, ``P+T`` or ``2 N B H T^2 K``. Spaces mean nothing.
        letters: What each letter stands for.

    Raises:
        KeyError: for a letter that stands for nothing.
    """
    total = 0
    for term in formula.replace(" ", "").split("+"):
        assert re.fullmatch(rf"({_FACTOR.pattern})+", term), f"{formula!r} is not a sum of products of letters"
        product = 1
        for factor, power in _FACTOR.findall(term):
            number = int(factor) if factor.isdigit() else letters[factor]
            product *= number ** int(power or 1)
        total += product
    return total


def bind(shapes: Sequence[tuple[str, Sequence[str], Sequence[int]]], given: Mapping[str, int]) -> dict[str, int]:
    """What each letter stands for, so that all symbolic shapes agree with the actual ones.

    A letter that stands alone in a shape is bound to the size there; everything else must then come out right.

    Args:
        shapes: Of each operation its name, its symbolic shape, such as ``("B", "H", "T", "P+T")``, and the actual one.
        given: Letters that are known beforehand.

    Raises:
        AssertionError: if a size is not what its symbol says. Then a symbol is wrong, or the model.
    """
    letters = dict(given)
    for name, symbols, sizes in shapes:
        assert len(symbols) == len(sizes), f"{name}: {list(symbols)} and {list(sizes)} are not equally long"
        for symbol, size in zip(symbols, sizes, strict=True):
            if re.fullmatch("[A-Z]", symbol):
                letters.setdefault(symbol, size)
    for name, symbols, sizes in shapes:
        expected = [value_of(symbol, letters) for symbol in symbols]
        assert expected == list(sizes), (
            f"{name}: {list(symbols)} is {expected} with {letters}, but {list(sizes)} flowed"
        )
    return letters
