"""Search for good outputs of any model that gives next-piece logits: greedy, beam, and sampling.

A search takes a step function and a state, not a model:

1.  ``logits, state = step(tokens, state)`` is called with the last piece of every live hypothesis. At first that is
    BOS, or the last piece of a prompt whose other pieces the state has seen.
2.  Edits (`warpers.RepetitionPenalty`) may change the logits that the search goes by; what it reports is the model's.
    Log-probabilities are normalised over the whole row; then the rules (`rules`) forbid pieces: suppressed ids, EOS
    before the minimum length, anything but the forced prefix, anything but EOS at the maximum length; what would
    repeat an n-gram (`repetition`) or complete a phrase that is not wanted (`phrases`).
3.  Greedy search takes the best piece of each row; sampling draws one, after the filters (`warpers`) have changed the
    chances. Beam search takes the best continuations of all hypotheses of a sentence together; those that end in EOS
    finish, the best others stay live.
4.  Finished hypotheses compete by score: log-probability over a length penalty (`length_penalty`).
5.  A sentence is done when nothing live can beat its finished ones. It leaves the batch.
6.  ``state = state.select(rows, sentences)`` makes the state follow the hypotheses that go on.
"""

from seq2seq.search.beam import beam_search
from seq2seq.search.greedy import greedy
from seq2seq.search.hypotheses import DeadEndError, Hypothesis, Identity, SearchLimits, StopTest
from seq2seq.search.length_penalty import LengthPenalty
from seq2seq.search.rules import Rule
from seq2seq.search.sampling import random_source, sample
from seq2seq.search.step import SearchState, StepFunction
from seq2seq.search.warpers import MinP, RepetitionPenalty, Temperature, TopK, TopP

__all__ = [
    "DeadEndError",
    "Hypothesis",
    "Identity",
    "LengthPenalty",
    "MinP",
    "RepetitionPenalty",
    "Rule",
    "SearchLimits",
    "SearchState",
    "StepFunction",
    "StopTest",
    "Temperature",
    "TopK",
    "TopP",
    "beam_search",
    "greedy",
    "random_source",
    "sample",
]
