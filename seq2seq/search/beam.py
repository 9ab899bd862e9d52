"""Beam search with a stop rule that is exact for any length penalty."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from seq2seq.search.greedy import greedy
from seq2seq.search.hypotheses import FinishedPool, Hypothesis, Identity, SearchLimits, StopTest, dead_end, finished
from seq2seq.search.length_penalty import LengthPenalty
from seq2seq.search.progress import Bonus, Progress
from seq2seq.search.rules import Rows, Rule, build_rules
from seq2seq.search.step import State, StepFunction, next_log_probs, top_pieces, values_at
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
    device: torch.device | str,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, best score first, all of them ended.

    A sentence has up to `beam_size` live hypotheses. Each step looks at its 2 * `beam_size` most probable continuations
    (one more `beam_size` for each further end that the limits know): those by EOS among the first `beam_size` finish,
    the first `beam_size` others stay live. What a stop test or an open limit ends finishes as those by EOS do. It stops
    when no completion of a live hypothesis can score higher than its `n_best`-th best finished one, and then leaves the
    batch. Equal log-probabilities or scores: the one found first goes first. A beam of 1 is greedy search.

    Args:
        step: Gives the logits of the next piece.
        state: Of the batch before the first piece, one row a sentence.
        limits: What may be produced.
        beam_size: Live hypotheses of a sentence.
        n_best: Hypotheses wanted; there are fewer if the beam finishes fewer that are distinct. The first ones do not
            depend on it.
        penalty: Divides log-probabilities into scores.
        identity: Makes hypotheses one answer if it gives equal values, for example the text that the ids decode to.
            None tells them apart by their ids.
        patience: Ends the search of a sentence when `patience` * `beam_size` of its hypotheses have ended.
        rules: Forbid pieces, besides the limits.
        progress: Shares out the beam.
        bonus: Adds to the scores of hypotheses that end.
        edits: Change the logits that hypotheses are compared by; the log-probabilities reported are the model's.
        stop: Ends further hypotheses.
        device: Where `step` expects its tokens.

    Raises:
        ValueError: if `beam_size` or `n_best` is out of range, an id lies outside the model's outputs, a
            log-probability is NaN, or a sentence has no possible hypothesis.
    """
    if not 1 <= n_best <= beam_size:
        raise ValueError(f"n_best={n_best} with beam_size={beam_size}; choose 1 <= n_best <= beam_size")
    if beam_size == 1:
        only = greedy(step, state, limits, penalty=penalty, edits=edits, rules=rules, stop=stop, device=device)
        return [[best] for best in only]
    device = torch.device(device)
    rules = [*build_rules(limits, device), *rules]
    assert patience is None and progress is None and bonus is None  # noqa: PT018
    pools = [FinishedPool(n_best, identity) for _ in range(len(limits))]
    live = _Live.start(len(limits))
    tokens = limits.first_tokens(device)
    num_looked_at = (1 + len(limits.ends)) * beam_size
    while len(live.sentences):
        log_probs, own, state = next_log_probs(
            step, tokens, state, rows=live.rows(), rules=rules, edits=edits, limits=limits
        )
        values, pieces = top_pieces(log_probs, num_looked_at)
        own_values = values_at(own, pieces) if edits else values
        found = _Candidates.of(live, values, pieces, own_values, num_looked_at)
        fates = _Fates.of(found, live, limits, beam_size, stop)
        _collect(found, fates, live, pools, limits, penalty)
        going = _going_on(found, fates, live, pools, limits, penalty)
        if len(going) == 0:
            break
        old_rows, live = live.advance(found, fates, going)
        if not _unchanged(old_rows, len(tokens)):
            state = state.select(old_rows.to(device), going.to(device))
        tokens = live.ids.flatten(0, 1)[:, -1:].to(device)
    for sentence, pool in enumerate(pools):
        if not pool.best():
            raise dead_end(sentence)
    return [pool.best() for pool in pools]


@dataclass(frozen=True)
class _Live:
    """The live hypotheses, on the CPU: equally many of each sentence, best first.

    A sentence that has fewer than others is filled up with copies of its first one that have log-probability -inf, so
    that none of their continuations is ever a candidate.
    """

    sentences: Int[Tensor, " B"]
    """Number of each sentence, as in the `SearchLimits`."""
    log_probs: Float[Tensor, "B W"]
    ids: Int[Tensor, "B W t"]
    token_log_probs: Float[Tensor, "B W t"]

    @staticmethod
    def start(num_sentences: int) -> "_Live":
        """One empty hypothesis for each sentence."""
        return _Live(
            sentences=torch.arange(num_sentences),
            log_probs=torch.zeros(num_sentences, 1, dtype=torch.float64),
            ids=torch.empty(num_sentences, 1, 0, dtype=torch.long),
            token_log_probs=torch.empty(num_sentences, 1, 0, dtype=torch.float64),
        )

    @property
    def length(self) -> int:
        """Pieces of each hypothesis."""
        return self.ids.shape[2]

    def rows(self) -> Rows:
        """The hypotheses as rules see them, one a row."""
        return Rows(self.sentences.repeat_interleave(self.ids.shape[1]), self.ids.flatten(0, 1))

    def advance(
        self, found: "_Candidates", fates: "_Fates", going: Int[Tensor, " N"]
    ) -> tuple[Int[Tensor, " R"], "_Live"]:
        """For each row of the next step the row that it continues, and the hypotheses of the sentences `going`."""
        stays = fates.stays[going]
        width = int(stays.sum(dim=1).max())
        order = stays.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :width]
        real = stays.gather(1, order)
        order = torch.where(real, order, order[:, :1])
        beams = found.beams[going].gather(1, order)
        place = going[:, None]
        return (place * self.ids.shape[1] + beams).flatten(), _Live(
            sentences=self.sentences[going],
            log_probs=found.log_probs[place, order].masked_fill(~real, -torch.inf),
            ids=torch.cat([self.ids[place, beams], found.pieces[place, order][..., None]], dim=2),
            token_log_probs=torch.cat(
                [self.token_log_probs[place, beams], found.piece_log_probs[place, order][..., None]], dim=2
            ),
        )


@dataclass(frozen=True)
class _Candidates:
    """The most probable continuations of each sentence's live hypotheses, best first."""

    log_probs: Float[Tensor, "B M"]
    """Of the hypothesis with the piece added; -inf where it is forbidden."""
    beams: Int[Tensor, "B M"]
    """Which live hypothesis is continued."""
    pieces: Int[Tensor, "B M"]
    piece_log_probs: Float[Tensor, "B M"]
    """What the model gives to the piece."""

    @staticmethod
    def of(
        live: _Live,
        values: Float[Tensor, "R n"],
        pieces: Int[Tensor, "R n"],
        own_values: Float[Tensor, "R n"],
        count: int,
    ) -> "_Candidates":
        """The best `count` of all rows' best pieces, sentence by sentence."""
        batch, width = live.log_probs.shape
        num_pieces = values.shape[1]
        totals = (live.log_probs[:, :, None] + values.view(batch, width, num_pieces)).flatten(1)
        # The stable sort puts the better hypothesis, then the better piece, first where totals are equal.
        totals, order = totals.sort(dim=1, descending=True, stable=True)
        totals, order = totals[:, :count], order[:, :count]
        return _Candidates(
            log_probs=totals,
            beams=order // num_pieces,
            pieces=pieces.view(batch, -1).gather(1, order),
            piece_log_probs=own_values.view(batch, -1).gather(1, order),
        )

    def ids(self, live: _Live, place: int, slot: int) -> list[int]:
        """All pieces of one candidate."""
        return [*live.ids[place, int(self.beams[place, slot])].tolist(), int(self.pieces[place, slot])]


@dataclass(frozen=True)
class _Fates:
    """What becomes of each candidate; of those that are neither, nothing."""

    finish: Bool[Tensor, "B M"]
    """At its end, and among the first W."""
    stays: Bool[Tensor, "B M"]
    """The first W that are not at their end."""
    stopped: Bool[Tensor, "B M"]
    """Ended by the stop test."""

    @staticmethod
    def of(found: _Candidates, live: _Live, limits: SearchLimits, beam_size: int, stop: StopTest | None) -> "_Fates":
        """Sort the candidates out."""
        possible = found.log_probs > -torch.inf
        ended = torch.isin(found.pieces, torch.tensor(limits.ends))
        stopped = torch.zeros_like(ended)
        if stop is not None:
            for place, slot in (possible & ~ended).nonzero().tolist():
                stopped[place, slot] = stop(int(live.sentences[place]), tuple(found.ids(live, place, slot)))
        ended = ended | stopped
        if limits.open_end:
            ended = ended | (torch.tensor(limits.max_lengths)[live.sentences] <= live.length + 1)[:, None]
        goes_on = possible & ~ended
        return _Fates(
            finish=possible & ended & (torch.arange(ended.shape[1]) < beam_size),
            stays=goes_on & (goes_on.cumsum(dim=1) <= beam_size),
            stopped=stopped,
        )


def _collect(
    found: _Candidates,
    fates: _Fates,
    live: _Live,
    pools: list[FinishedPool],
    limits: SearchLimits,
    penalty: LengthPenalty,
) -> None:
    """Put the hypotheses that finish in this step into the pools of their sentences."""
    places, slots = fates.finish.nonzero(as_tuple=True)
    divisor = penalty(live.length + 1)
    log_probs = found.log_probs[places, slots].tolist()
    sentences = live.sentences[places].tolist()
    for place, slot, log_prob, sentence in zip(places.tolist(), slots.tolist(), log_probs, sentences, strict=True):
        if not pools[sentence].accepts(log_prob / divisor):
            continue
        beam = int(found.beams[place, slot])
        token_log_probs = [*live.token_log_probs[place, beam].tolist(), float(found.piece_log_probs[place, slot])]
        hypothesis = finished(
            limits,
            sentence,
            found.ids(live, place, slot),
            token_log_probs,
            penalty,
            total=log_prob,
            stopped=bool(fates.stopped[place, slot]),
        )
        pools[sentence].add(hypothesis)


def _going_on(
    found: _Candidates,
    fates: _Fates,
    live: _Live,
    pools: list[FinishedPool],
    limits: SearchLimits,
    penalty: LengthPenalty,
) -> Int[Tensor, " N"]:
    """Places of the sentences of which a live hypothesis could still become one of the n best."""
    best_live = found.log_probs.masked_fill(~fates.stays, -torch.inf).amax(dim=1).tolist()
    going = []
    for place, (sentence, log_prob) in enumerate(zip(live.sentences.tolist(), best_live, strict=True)):
        if log_prob == -torch.inf:
            continue
        next_length = max(live.length + 2, limits.shortest[sentence])
        if pools[sentence].accepts(penalty.best_possible(log_prob, next_length, limits.max_lengths[sentence])):
            going.append(place)
    return torch.tensor(going, dtype=torch.long)


def _unchanged(rows: Int[Tensor, " R"], num_old: int) -> bool:
    """Whether every row continues itself, so that the state need not move."""
    return len(rows) == num_old and torch.equal(rows, torch.arange(num_old))
