"""Lines that a model can be tried with when there is no text: random pieces of its own vocabulary."""

import random
from collections.abc import Iterator

from seq2seq.text.tokenizer import Tokenizer

UNUSUAL = ("\U0001f9ff", "\ua66e", "\U00012031", "\uf8ff")
"""Characters that few vocabularies have: a charm, a many-eyed O, a cuneiform star, a private one."""

BLANKS = ("", " ", "\u3000")
"""Lines with nothing to see in them."""

LONGEST = 30
"""Pieces of the longest lines."""


def random_lines(tokenizer: Tokenizer, count: int, seed: int = 1) -> list[str]:
    """`count` lines of random pieces, short and long, a few of them blank, some with a character that nobody knows.

    Args:
        tokenizer: Whose pieces.
        count: How many.
        seed: The same seed and tokenizer give the same lines.
    """
    draw = random.Random(seed)
    pieces = _ordinary(tokenizer)
    lines = _lines(tokenizer, pieces, draw)
    return [next(lines) for _ in range(count)]


def _ordinary(tokenizer: Tokenizer) -> list[int]:
    """The ids that spell something by themselves."""
    special = {*vars(tokenizer.special).values(), *tokenizer.stop, *tokenizer.byte_ids}
    return [id_ for id_ in range(tokenizer.vocab_size) if id_ not in special]


def _lines(tokenizer: Tokenizer, pieces: list[int], draw: random.Random) -> Iterator[str]:
    """One line after the other, without end: of each ten a long one, a blank one and one with an unusual character."""
    unusual = _unusual(tokenizer)
    while True:
        for kind in range(10):
            length = LONGEST if kind == 3 else draw.randint(1, 12)
            line = tokenizer.decode(draw.choices(pieces, k=length)).replace("\r", " ")
            if kind == 5:
                line = f"{line} {unusual}"
            yield draw.choice(BLANKS) if kind == 7 else line


def _unusual(tokenizer: Tokenizer) -> str:
    """A character that the vocabulary does not have, if one of ours is none of it."""
    unknown = tokenizer.special.unk
    return next((character for character in UNUSUAL if unknown in tokenizer.encode(character)), UNUSUAL[0])
