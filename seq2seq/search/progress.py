"""How a beam is shared out among hypotheses that have come to different places, and what their ends are worth.

These are the two things that a `Rule` cannot do, which sees one row at a time and knows nothing of the beam.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from seq2seq.search.rules import Rows
from seq2seq.shapes import Float, Tensor


@runtime_checkable
class Progress(Protocol):
    """Keeps apart hypotheses that have more or less of what they must contain.

    The W places of a beam are shared out among the values of `met` that its candidates have, so that those who have
    much do not fall behind those who are merely probable.

    Source:
        Post and Vilar 2018, arXiv:1804.06609, section 3.
    """

    def __call__(self, rows: Rows, log_probs: Float[Tensor, "R V"]) -> None:
        """As a rule: forbid the end to hypotheses that do not have everything."""
        ...

    def wanted(self, rows: Rows) -> Sequence[Sequence[int]]:
        """For each row the pieces to be looked at besides the most probable ones."""
        ...

    def met(self, sentence: int, ids: Sequence[int]) -> int:
        """How much a hypothesis of that sentence has; 0 for a sentence that must contain nothing."""
        ...


@runtime_checkable
class Bonus(Protocol):
    """Adds to the score of a hypothesis that ends, such as the coverage of the source; never above 0."""

    def __call__(self, state: object) -> Float[np.ndarray, " R"]:
        """For each row of the state, which has seen the pieces before the last one, what its score gains at its end."""
        ...
