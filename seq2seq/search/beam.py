"""Beam search with a stop rule that is exact for any length penalty."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seq2seq.search.candidates import Candidates, Fates, share_out, with_wanted
from seq2seq.search.greedy import greedy
from seq2seq.search.hypotheses import DeadEndError, FinishedPool, Hypothesis, Identity, SearchLimits, StopTest, finished
from seq2seq.search.length_penalty import LengthPenalty
from seq2seq.search.progress import Bonus, Progress
from seq2seq.search.rules import Rows, Rule, build_rules
from seq2seq.search.step import (
    EstimateFunction,
    Ranking,
    Scores,
    State,
    StepFunction,
    is_end,
    move_into,
    next_scores,
    top_pieces,
)
from seq2seq.shapes import Bool, Float, Int, Tensor


def beam_search(
    step: StepFunction[State],
    state: State,
    limits: SearchLimits,
    *,
    beam_size: int,
    n_best: int,
    penalty: LengthPenalty,
    patience: float | None = None,
    identity: Identity | None = None,
    edits: Sequence[Rule] = (),
    rules: Sequence[Rule] = (),
    progress: Progress | None = None,
    bonus: Bonus | None = None,
    stop: StopTest | None = None,
    scored: bool = True,
    estimate: EstimateFunction[State] | None = None,
    ranking: Ranking | None = None,
    device: torch.device | str,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, best score first, all of them ended.

    A sentence has up to `beam_size` live hypotheses. Each step looks at its 2 * `beam_size` most probable continuations
    (one more `beam_size` for each further end that the limits know): those by EOS among the first `beam_size` finish,
    the first `beam_size` others stay live. What a stop test or an open limit ends finishes as those by EOS do. A live
    hypothesis is given up when no completion of it can score higher than its sentence's `n_best`-th best finished one;
    a sentence that has none left leaves the batch. Equal log-probabilities or scores: the one found first goes first.
    A beam of 1 is greedy search.

    Args:
        step: Gives the logits of the next piece.
        state: Of the batch before the first piece, one row a sentence.
        limits: What may be produced.
        beam_size: Live hypotheses of a sentence.
        n_best: Hypotheses wanted; there are fewer if the beam finishes fewer that are distinct. The first ones do not
            depend on it.
        penalty: Divides log-probabilities into scores.
        patience: The search of a sentence also ends when `patience * beam_size` of its hypotheses have finished
            (Kasai et al. 2022, arXiv:2204.05424); None leaves it to the exact rule.
        identity: Makes hypotheses one answer if it gives equal values, for example the text that the ids decode to.
            None tells them apart by their ids.
        edits: Change the logits that hypotheses are compared by; the log-probabilities reported are the model's.
        rules: Forbid pieces, besides the limits, or lower what they are worth.
        progress: Shares out the beam among hypotheses that have more or less of what they must contain.
        bonus: Adds to the scores of hypotheses that finish.
        stop: Ends further hypotheses.
        scored: Whether log-probabilities are wanted of a beam of 1, which finds its way without them (see `grow`).
        estimate: For a beam of 1, as in `greedy`.
        ranking: For larger beams: ranks pieces in the place of torch and NumPy.
        device: Where `step` expects its tokens.

    Raises:
        ValueError: if `beam_size` or `n_best` is out of range, an id lies outside the model's outputs, a
            log-probability is NaN, or a sentence has no possible hypothesis.
    """
    if not 1 <= n_best <= beam_size:
        raise ValueError(f"n_best={n_best} with beam_size={beam_size}; choose 1 <= n_best <= beam_size")
    if beam_size == 1:
        assert progress is None, "one place cannot be shared out"
        assert bonus is None, "one hypothesis has nothing to be compared with"
        only = greedy(
            step,
            state,
            limits,
            penalty=penalty,
            edits=edits,
            rules=rules,
            stop=stop,
            scored=scored,
            estimate=estimate,
            device=device,
        )
        return [[best] for best in only]
    search = _Search(limits, beam_size, n_best, penalty, patience, identity, progress, bonus, stop, ranking)
    device = torch.device(device)
    rules = [*build_rules(limits, device), *rules]
    if progress is not None:
        rules.append(progress)
    live = _Live.start(len(limits))
    tokens = limits.first_tokens(device)
    while len(live.sentences):
        rows = live.as_rows()
        scores, state = next_scores(
            step, tokens, state, rows=rows, rules=rules, edits=edits, limits=limits, ranking=ranking
        )
        live, moves = search.advance(live, rows, scores, state)
        if moves is not None:
            state = state.select(*moves)
        tokens = torch.from_numpy(np.ascontiguousarray(live.ids[:, -1:])).to(device)
    for sentence, pool in enumerate(search.pools):
        if not pool.best():
            raise DeadEndError(sentence)
    return [pool.best() for pool in search.pools]


@dataclass(frozen=True)
class _Live:
    """The live hypotheses. Each has a row in the state, and those of a sentence need not be neighbours there."""

    sentences: Int[np.ndarray, " B"]
    """Number of each sentence, as in the `SearchLimits`."""
    slots: Int[np.ndarray, "B W"]
    """Rows of each sentence's hypotheses, most probable first; -1 where it has fewer than others."""
    places: Int[np.ndarray, " R"]
    """Of each row the place of its sentence among `sentences`."""
    log_probs: Float[np.ndarray, " R"]
    ids: Int[np.ndarray, "R t"]
    token_log_probs: Float[np.ndarray, "R t"]

    @staticmethod
    def start(num_sentences: int) -> "_Live":
        """One empty hypothesis for each sentence."""
        places = np.arange(num_sentences)
        return _Live(
            sentences=places,
            slots=places[:, None],
            places=places,
            log_probs=np.zeros(num_sentences),
            ids=np.empty((num_sentences, 0), dtype=np.int64),
            token_log_probs=np.empty((num_sentences, 0)),
        )

    @property
    def length(self) -> int:
        """Pieces of each hypothesis."""
        return int(self.ids.shape[1])

    def as_rows(self) -> Rows:
        """The hypotheses as rules see them."""
        return Rows(torch.from_numpy(self.sentences[self.places]), torch.from_numpy(self.ids))


Moves = tuple[Tensor, Tensor, Tensor]
"""What a state's `select` is told."""


class _Search:
    """What a beam search keeps besides the live hypotheses: the finished ones."""

    def __init__(
        self,
        limits: SearchLimits,
        beam_size: int,
        n_best: int,
        penalty: LengthPenalty,
        patience: float | None,
        identity: Identity | None,
        progress: Progress | None,
        bonus: Bonus | None,
        stop: StopTest | None,
        ranking: Ranking | None,
    ) -> None:
        self._limits, self._penalty, self._stop = limits, penalty, stop
        self._beam_size, self._patience = beam_size, patience
        self._progress, self._bonus = progress, bonus
        self._top = top_pieces if ranking is None else ranking.top
        self.pools = [FinishedPool(n_best, identity) for _ in range(len(limits))]
        self._num_finished = np.zeros(len(limits), dtype=np.int64)
        self._shortest, self._longest = np.array(limits.shortest), np.array(limits.max_lengths)
        self._num_looked_at = (1 + len(limits.ends)) * beam_size

    def advance(self, live: _Live, rows: Rows, scores: Scores, state: object) -> tuple[_Live, Moves | None]:
        """The live hypotheses after one more piece, and how the state's rows follow; None if they need not move."""
        pieces = self._top(scores.logits, self._num_looked_at)
        if self._progress is not None:
            pieces = with_wanted(pieces, self._progress.wanted(rows))
        values = scores.log_probs(np.maximum(pieces, 0))
        values[pieces < 0] = -np.inf
        own_values = scores.own_log_probs(np.maximum(pieces, 0)) if scores.edited else values
        count = None if self._progress is not None else self._num_looked_at
        found = Candidates.of(live.slots, live.log_probs, pieces, values, own_values, count)
        if self._progress is not None:
            found = self._shared_out(found, live, self._progress)
        ended, stopped = self._ended(found, live)
        fates = Fates.of(found, ended, self._beam_size)
        self._collect(found, fates, stopped, live, state)
        return _go_on(found, self._going(found, fates, live), live)

    def _shared_out(self, found: Candidates, live: _Live, progress: Progress) -> Candidates:
        """The candidates in the order in which they take the places of the beam."""
        met = np.zeros(found.log_probs.shape, dtype=np.int64)
        for place, at in np.argwhere(found.log_probs > -np.inf).tolist():
            met[place, at] = progress.met(int(live.sentences[place]), _ids(found, live, place, at))
        return share_out(found, met)

    def _ended(self, found: Candidates, live: _Live) -> tuple[Bool[np.ndarray, "B M"], Bool[np.ndarray, "B M"]]:
        """Which candidates are at their end, and which of them by the stop test."""
        ended = is_end(found.pieces, self._limits)
        stopped = np.zeros_like(ended)
        if self._stop is not None:
            for place, at in np.argwhere((found.log_probs > -np.inf) & ~ended).tolist():
                stopped[place, at] = self._stop(int(live.sentences[place]), tuple(_ids(found, live, place, at)))
        ended = ended | stopped
        if self._limits.open_end:
            ended = ended | (self._longest[live.sentences] <= live.length + 1)[:, None]
        return ended, stopped

    def _collect(
        self, found: Candidates, fates: Fates, stopped: Bool[np.ndarray, "B M"], live: _Live, state: object
    ) -> None:
        """Put the hypotheses that finish in this step into the pools of their sentences."""
        if not fates.finish.any():
            return
        bonus = self._bonus(state) if self._bonus is not None else np.zeros(len(live.places))
        divisor = self._penalty(live.length + 1)
        for place, at in np.argwhere(fates.finish).tolist():
            sentence, row = int(live.sentences[place]), int(found.rows[place, at])
            self._num_finished[sentence] += 1
            total = float(found.log_probs[place, at])
            if not self.pools[sentence].accepts(total / divisor + float(bonus[row])):
                continue
            hypothesis = finished(
                self._limits,
                sentence,
                _ids(found, live, place, at),
                [*live.token_log_probs[row].tolist(), float(found.piece_log_probs[place, at])],
                self._penalty,
                total=total,
                bonus=float(bonus[row]),
                stopped=bool(stopped[place, at]),
            )
            self.pools[sentence].add(hypothesis)

    def _going(self, found: Candidates, fates: Fates, live: _Live) -> Bool[np.ndarray, "B M"]:
        """Which candidates go on: those of which a completion could still become one of the n best."""
        next_length = np.maximum(live.length + 2, self._shortest[live.sentences])[:, None]
        longest = self._longest[live.sentences][:, None]
        possible = self._penalty.best_possible(found.log_probs, next_length, longest)
        to_beat = np.array([self.pools[sentence].to_beat for sentence in live.sentences.tolist()])[:, None]
        hopeful = fates.stays & (possible > to_beat)
        if self._patience is not None:
            hopeful &= (self._num_finished[live.sentences] < self._patience * self._beam_size)[:, None]
        if self._patience is not None or self._progress is not None:
            # all of the beam stays while one may win: giving up some would give their places to others
            return fates.stays & hopeful.any(axis=1, keepdims=True)
        return hopeful


def _ids(found: Candidates, live: _Live, place: int, at: int) -> list[int]:
    """All pieces of one candidate."""
    return [*live.ids[found.rows[place, at]].tolist(), int(found.pieces[place, at])]


def _go_on(found: Candidates, going: Bool[np.ndarray, "B M"], live: _Live) -> tuple[_Live, Moves | None]:
    """The hypotheses that go on, and how the rows of the state follow them."""
    places, at = going.nonzero()
    parents = found.rows[places, at]
    rows = move_into(parents, len(live.places))
    order = np.argsort(rows)  # of the hypotheses, by the rows that they are given
    sources, by_row = parents[order], (places[order], at[order])
    counts = going.sum(axis=1)
    kept = np.flatnonzero(counts)
    new_places = (np.cumsum(counts > 0) - 1)[places]
    slots = np.full((len(kept), int(counts.max(initial=0))), -1, dtype=np.int64)
    slots[new_places, np.arange(len(places)) - (np.cumsum(counts) - counts)[places]] = rows
    new = _Live(
        sentences=live.sentences[kept],
        slots=slots,
        places=new_places[order],
        log_probs=found.log_probs[by_row],
        ids=np.concatenate([live.ids[sources], found.pieces[by_row][:, None]], axis=1),
        token_log_probs=np.concatenate([live.token_log_probs[sources], found.piece_log_probs[by_row][:, None]], axis=1),
    )
    unmoved = np.array_equal(sources, np.arange(len(live.places))) and len(kept) == len(live.sentences)
    if len(sources) == 0 or unmoved:
        return new, None
    return new, (torch.from_numpy(sources), torch.from_numpy(kept), torch.from_numpy(new.places))
