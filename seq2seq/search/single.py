"""One hypothesis a sentence, piece by piece: what greedy search and sampling have in common."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from seq2seq.search.hypotheses import DeadEndError, Hypothesis, SearchLimits, StopTest, finished
from seq2seq.search.length_penalty import LengthPenalty
from seq2seq.search.rules import Rows, Rule, build_rules
from seq2seq.search.step import (
    EstimateFunction,
    State,
    StepFunction,
    check_numbers,
    chosen,
    in_floats,
    is_end,
    move_into,
    next_scores,
)
from seq2seq.shapes import Bool, Float, Int, Tensor

Choice = Callable[[Rows, Float[Tensor, "R V"]], Int[np.ndarray, "R 1"]]
"""Takes each row's next piece, given logits that are -inf where a piece is not allowed."""


@dataclass(frozen=True)
class Grown:
    """One sentence, a piece later."""

    sentence: int
    """Its number, as in the `SearchLimits`."""
    piece: int
    """The piece that was added."""
    hypothesis: Hypothesis | None
    """The whole, if it has come to its end."""


def grow(
    step: StepFunction[State],
    state: State,
    limits: SearchLimits,
    choose: Choice,
    *,
    penalty: LengthPenalty | None = None,
    edits: Sequence[Rule] = (),
    rules: Sequence[Rule] = (),
    stop: StopTest | None = None,
    scored: bool = True,
    estimate: EstimateFunction[State] | None = None,
    device: torch.device | str,
) -> Iterator[list[Grown]]:
    """After each step the sentences that it has added a piece to; those that are done leave the batch.

    Args:
        step: Gives the logits of the next piece.
        state: Of the batch before the first piece, one row a sentence.
        limits: What may be produced.
        choose: Takes one piece for each row.
        penalty: Only for the score that is reported. None scores by log-probability.
        edits: Change the logits that the choice is made from; what is reported is the model's.
        rules: Forbid pieces, besides the limits.
        stop: Ends further hypotheses.
        scored: Whether log-probabilities are wanted. Without them steps are faster, as nothing is normalised; score and
            log-probability of a hypothesis are NaN then, and those of its pieces are missing.
        estimate: In the place of `step` where nothing is scored and `choose` takes the best piece, forbidden by the
            limits alone.
        device: Where `step` expects its tokens.

    Raises:
        ValueError: if an id lies outside the model's outputs, no piece is possible, or a log-probability is NaN; not
            scored, only where an allowed piece's logit is NaN or infinite.
    """
    device = torch.device(device)
    penalty = penalty or LengthPenalty()
    rules = [*build_rules(limits, device), *rules]
    sentences = np.arange(len(limits))
    ids, token_log_probs = np.empty((len(limits), 0), dtype=np.int64), np.empty((len(limits), 0))
    tokens = limits.first_tokens(device)
    while len(sentences):
        rows = Rows(torch.from_numpy(sentences), torch.from_numpy(ids))
        if scored:
            scores, state = next_scores(step, tokens, state, rows=rows, rules=rules, edits=edits, limits=limits)
            pieces = choose(rows, scores.logits)
            values = scores.log_probs(pieces)
            own = scores.own_log_probs(pieces) if scores.edited else values
            token_log_probs = np.concatenate([token_log_probs, own], axis=1)
            _check_ends(values, sentences)
        else:
            pieces, state, by_estimate = _best(
                estimate or step, tokens, state, choose, rows=rows, rules=rules, edits=edits, limits=limits
            )
            if not by_estimate:
                estimate = None  # too rough once, too rough mostly; and rows become fewer
        ids = np.concatenate([ids, pieces], axis=1)
        ended, stopped = _ends(sentences, ids, limits, stop)
        results: dict[int, Hypothesis] = {}
        for row in np.flatnonzero(ended).tolist():
            hypothesis = finished(
                limits,
                int(sentences[row]),
                ids[row].tolist(),
                token_log_probs[row].tolist(),
                penalty,
                stopped=bool(stopped[row]),
            )
            results[row] = hypothesis if scored else replace(hypothesis, log_prob=math.nan, score=math.nan)
        yield [
            Grown(sentence, piece, results.get(row))
            for row, (sentence, piece) in enumerate(zip(sentences.tolist(), pieces[:, 0].tolist(), strict=True))
        ]
        if ended.any():
            going = np.flatnonzero(~ended)
            if len(going):
                going = going[np.argsort(move_into(going, len(ended)))]
                kept = torch.from_numpy(going)
                state = state.select(kept, kept, torch.arange(len(kept)))
            sentences, ids, token_log_probs = sentences[going], ids[going], token_log_probs[going]
        tokens = torch.from_numpy(ids[:, -1:].copy()).to(device)


def _best(
    step: StepFunction[State] | EstimateFunction[State],
    tokens: Int[Tensor, "R 1"],
    state: State,
    choose: Choice,
    *,
    rows: Rows,
    rules: Sequence[Rule],
    edits: Sequence[Rule],
    limits: SearchLimits,
) -> tuple[Int[np.ndarray, "R 1"], State, bool]:
    """Each row's next piece, the new state, and whether estimates have been enough.

    A function, so that the memory of the logits is free for those of the next step.
    """
    answer, state = step(tokens, state)
    if not isinstance(answer, Tensor):
        limits.check_vocab_size(answer.values.shape[-1])
        for rule in rules:
            rule(rows, answer.values)
        found = answer.best()
        if found is not None:
            return found, state, True
        answer = answer.logits()
    logits = in_floats(answer, limits)
    for rule in (*edits, *rules):
        rule(rows, logits)
    pieces = choose(rows, logits)
    values = chosen(logits, pieces)
    check_numbers(np.where(values == np.inf, np.nan, values))  # its log-probability would be NaN
    _check_ends(values, rows.sentences.numpy())
    return pieces, state, False


def _check_ends(values: Float[np.ndarray, "R 1"], sentences: Int[np.ndarray, " R"]) -> None:
    """Refuse to go on where the best piece is one that is forbidden.

    Raises:
        ValueError: saying for which sentence.
    """
    for row in np.flatnonzero(values == -np.inf).tolist():
        raise DeadEndError(int(sentences[row]))


def complete(steps: Iterable[list[Grown]]) -> list[Hypothesis]:
    """All hypotheses, by the number of their sentence."""
    done = {one.sentence: one.hypothesis for grown in steps for one in grown if one.hypothesis is not None}
    return [done[sentence] for sentence in sorted(done)]


def _ends(
    sentences: Int[np.ndarray, " R"], ids: Int[np.ndarray, "R t"], limits: SearchLimits, stop: StopTest | None
) -> tuple[Bool[np.ndarray, " R"], Bool[np.ndarray, " R"]]:
    """Which rows have come to their end, and which of them by the stop test."""
    ended = is_end(ids[:, -1], limits)
    stopped = np.zeros(len(ids), dtype=bool)
    if stop is not None:
        for row in np.flatnonzero(~ended).tolist():
            stopped[row] = stop(int(sentences[row]), tuple(ids[row].tolist()))
        ended = ended | stopped
    if limits.open_end:
        ended = ended | (np.array(limits.max_lengths)[sentences] <= ids.shape[1])
    return ended, stopped
