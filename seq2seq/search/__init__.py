"""Search for good outputs of any model that gives next-piece logits: greedy and beam.

A search takes a step function and a state, not a model:

1.  ``logits, state = step(tokens, state)`` is called with the last piece of every live hypothesis, BOS at first.
2.  Log-probabilities are normalised over the whole row; then the rules (`rules`) forbid pieces: suppressed ids, EOS
    before the minimum length, anything but the forced prefix, anything but EOS at the maximum length.
3.  Greedy search takes the best piece of each row. Beam search takes the best continuations of all hypotheses of a
    sentence together; those that end in EOS finish, the best others stay live.
4.  Finished hypotheses compete by score: log-probability over a length penalty (`length_penalty`).
5.  A sentence is done when nothing live can beat its finished ones. It leaves the batch.
6.  ``state = state.select(rows, sentences)`` makes the state follow the hypotheses that go on.
"""

from seq2seq.search.beam import beam_search
from seq2seq.search.greedy import greedy
from seq2seq.search.hypotheses import Hypothesis, Identity, SearchLimits
from seq2seq.search.length_penalty import LengthPenalty
from seq2seq.search.step import SearchState, StepFunction

__all__ = [
    "Hypothesis",
    "Identity",
    "LengthPenalty",
    "SearchLimits",
    "SearchState",
    "StepFunction",
    "beam_search",
    "greedy",
]
