"""Sampling: the next piece is drawn by its probability, until EOS."""

import random
from collections.abc import Sequence

import numpy as np
import torch

from seq2seq.search.hypotheses import Hypothesis, SearchLimits, StopTest
from seq2seq.search.length_penalty import LengthPenalty
from seq2seq.search.rules import Rows, Rule
from seq2seq.search.single import complete, grow
from seq2seq.search.step import State, StepFunction
from seq2seq.shapes import Float, Int, Tensor


def random_source(seed: int, sentence: int, sample: int, start: int = 0) -> random.Random:
    """The random numbers of one sample of one sentence: they depend on these four numbers and on nothing else.

    A sentence that is searched in parts has one for each part, told apart by where it starts.

    Only its ``random()`` is used: of Python's generators that method alone is promised to stay the same.
    """
    return random.Random(f"{seed}/{sentence}/{sample}" + (f"/{start}" if start else ""))


class Draw:
    """Draws each row's next piece.

    Args:
        filters: Change the probabilities that are drawn by, or forbid pieces (see `warpers`); applied in this order.
        sources: For each sentence its random numbers, one of which is used up for each piece. So what is drawn for a
            sentence does not depend on the others in the batch.
    """

    def __init__(self, filters: Sequence[Rule], sources: Sequence[random.Random]) -> None:
        self._filters = list(filters)
        self._sources = sources

    def __call__(self, rows: Rows, logits: Float[Tensor, "R V"]) -> Int[np.ndarray, "R 1"]:
        """The pieces drawn."""
        kept = logits.clone()
        for apply in self._filters:
            apply(rows, kept)
        nothing_left = kept.amax(dim=-1, keepdim=True) == -torch.inf  # a dead end, which the caller tells
        # On the CPU in float64 on every device: the same numbers give the same piece.
        chances = kept.masked_fill(nothing_left, 0.0).cpu().double().softmax(-1).cumsum(-1)
        total = chances[:, -1:]
        numbers = [[self._sources[sentence].random()] for sentence in rows.sentences.tolist()]
        drawn = torch.tensor(numbers, dtype=torch.float64) * total
        below_all = torch.nextafter(total, torch.zeros_like(total))
        found: np.ndarray = torch.searchsorted(chances, torch.minimum(drawn, below_all), right=True).numpy()
        return found


def sample(
    step: StepFunction[State],
    state: State,
    limits: SearchLimits,
    *,
    filters: Sequence[Rule],
    sources: Sequence[random.Random],
    penalty: LengthPenalty | None = None,
    edits: Sequence[Rule] = (),
    rules: Sequence[Rule] = (),
    stop: StopTest | None = None,
    device: torch.device | str,
) -> list[Hypothesis]:
    """One hypothesis for each sentence: at every step a piece drawn from those that limits and filters leave.

    For several samples of a sentence, make several sentences of it (see `SearchState.select`).

    Args:
        step: Gives the logits of the next piece.
        state: Of the batch before the first piece, one row a sentence.
        limits: What may be produced.
        filters: Change the probabilities that are drawn by; what is reported is the model's.
        sources: For each sentence its random numbers.
        penalty: Only for the score that is reported. None scores by log-probability.
        edits: Change the logits before anything else.
        rules: Forbid pieces, besides the limits.
        stop: Ends further hypotheses.
        device: Where `step` expects its tokens.

    Raises:
        ValueError: if an id lies outside the model's outputs, a log-probability is NaN, or no piece is possible.
    """
    draw = Draw(filters, sources)
    return complete(
        grow(step, state, limits, draw, penalty=penalty, edits=edits, rules=rules, stop=stop, device=device)
    )
