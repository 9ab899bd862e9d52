"""Greedy search: the most probable next piece, until EOS."""

from collections.abc import Sequence

import numpy as np
import torch

from seq2seq.search.hypotheses import Hypothesis, SearchLimits, StopTest
from seq2seq.search.length_penalty import LengthPenalty
from seq2seq.search.rules import Rows, Rule
from seq2seq.search.single import complete, grow
from seq2seq.search.step import EstimateFunction, State, StepFunction, top_pieces
from seq2seq.shapes import Float, Int, Tensor


def greedy(
    step: StepFunction[State],
    state: State,
    limits: SearchLimits,
    *,
    penalty: LengthPenalty | None = None,
    edits: Sequence[Rule] = (),
    rules: Sequence[Rule] = (),
    stop: StopTest | None = None,
    scored: bool = True,
    estimate: EstimateFunction[State] | None = None,
    device: torch.device | str,
) -> list[Hypothesis]:
    """One hypothesis for each sentence: at every step the best piece that the limits allow.

    Args:
        step: Gives the logits of the next piece.
        state: Of the batch before the first piece, one row a sentence.
        limits: What may be produced.
        penalty: Only for the score that is reported; the choice does not depend on it. None scores by log-probability.
        edits: Change the logits that the choice is made from; what is reported is the model's.
        rules: Forbid pieces, besides the limits.
        stop: Ends further hypotheses.
        scored: Whether log-probabilities are wanted, as in `grow`.
        estimate: Finds best pieces sooner than `step`, where log-probabilities are not wanted and nothing but the
            limits changes what is best.
        device: Where `step` expects its tokens.

    Raises:
        ValueError: if an id lies outside the model's outputs, a log-probability is NaN, or no piece is possible.
    """
    return complete(
        grow(
            step,
            state,
            limits,
            best_piece,
            penalty=penalty,
            edits=edits,
            rules=rules,
            stop=stop,
            scored=scored,
            estimate=None if scored or edits or rules else estimate,
            device=device,
        )
    )


def best_piece(rows: Rows, logits: Float[Tensor, "R V"]) -> Int[np.ndarray, "R 1"]:
    """The best piece of every row, the one with the lowest id where several are equally good."""
    return top_pieces(logits, 1)
