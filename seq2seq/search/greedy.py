"""Greedy search: the most probable next piece, until EOS."""

import torch

from seq2seq.search.hypotheses import Hypothesis, SearchLimits, dead_end, finished
from seq2seq.search.length_penalty import LengthPenalty
from seq2seq.search.rules import Rows, build_rules
from seq2seq.search.step import State, StepFunction, next_log_probs, top_pieces


def greedy(
    step: StepFunction[State],
    state: State,
    limits: SearchLimits,
    *,
    penalty: LengthPenalty | None = None,
    device: torch.device | str,
) -> list[Hypothesis]:
    """One hypothesis for each sentence: at every step the best piece that the limits allow.

    Args:
        step: Gives the logits of the next piece.
        state: Of the batch before the first piece, one row a sentence.
        limits: What may be produced.
        penalty: Only for the score that is reported; the choice does not depend on it. None scores by log-probability.
        device: Where `step` expects its tokens.

    Raises:
        ValueError: if an id lies outside the model's outputs, a log-probability is NaN, or no piece is possible.
    """
    device = torch.device(device)
    penalty = penalty or LengthPenalty()
    rules = build_rules(limits, device)
    rows = Rows(torch.arange(len(limits)), torch.empty(len(limits), 0, dtype=torch.long))
    token_log_probs = torch.empty(len(limits), 0, dtype=torch.float64)
    tokens = torch.full((len(limits), 1), limits.bos, device=device)
    results: dict[int, Hypothesis] = {}
    while len(rows.sentences):
        log_probs, state = next_log_probs(step, tokens, state, rows=rows, rules=rules, limits=limits)
        values, pieces = top_pieces(log_probs, 1)
        ids = torch.cat([rows.ids, pieces], dim=1)
        token_log_probs = torch.cat([token_log_probs, values], dim=1)
        for row in (values[:, 0] == -torch.inf).nonzero()[:, 0].tolist():
            raise dead_end(int(rows.sentences[row]))
        ended = pieces[:, 0] == limits.eos
        for row in ended.nonzero()[:, 0].tolist():
            sentence = int(rows.sentences[row])
            results[sentence] = finished(limits, sentence, ids[row].tolist(), token_log_probs[row].tolist(), penalty)
        going = (~ended).nonzero()[:, 0]
        if 0 < len(going) < len(ended):
            kept = going.to(device)
            state = state.select(kept, kept)
        rows = Rows(rows.sentences[going], ids[going])
        token_log_probs = token_log_probs[going]
        tokens = rows.ids[:, -1:].to(device)
    return [results[sentence] for sentence in range(len(limits))]
