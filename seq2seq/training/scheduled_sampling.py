"""Scheduled sampling: what the decoder is given in training, in part replaced by what the model itself predicts.

A Transformer reads all target positions at once, so its predictions come from a pass of their own. The first pass is
given the right pieces. Its prediction at one position stands at the next, where the right piece would be, in what the
second pass is given:

    given                BOS  x    y    z
    predicted from it    x'   y'   z'   EOS'
    given next           BOS  x'   y    z'       (the 2nd and 4th piece replaced)

Each piece is replaced or not for itself. BOS and padding never are. A prediction comes from what stands before it, so
a replaced piece tells nothing of the right one.

Source:
    Bengio et al. 2015, arXiv:1506.03099 (for recurrent networks); Mihaylova and Martins 2019, arXiv:1906.07651, section
    3 (two passes of a Transformer); Duckworth et al. 2019, arXiv:1906.04331 (k passes). Deviations: EOS, BOS and
    padding are no candidates for a replacement, as a text does not go on behind them when it is generated. What is
    drawn for a piece, whether it is replaced and by which quantile of the distribution, is drawn once and kept over all
    passes, where one could also draw anew in each. So the first i pieces behind BOS that are given after i passes are
    those that replacing one piece after the other would give, and after as many passes as there are pieces all are. All
    passes have dropout, each its own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from seq2seq.config import MixingChoice, MixingSchedule, Replacement, ScheduledSamplingConfig
from seq2seq.models import Transformer
from seq2seq.nn.embedding import Mixture
from seq2seq.shapes import Bool, Float, Int, Tensor
from seq2seq.training.chunks import in_chunks

LEFT = 0.01
"""What the decays that never reach 0 have left at their end; the rest of them is stretched to go from 1 to 0."""


def mixing_rate(step: int, sampling: ScheduledSamplingConfig) -> float:
    """The share of pieces that are replaced in an optimiser step: 0 up to start_step, `rate` from end_step on.

    In between it is rate * (e(0) - e(i)) / (e(0) - e(n)), where e is a decay of the share of right pieces, i the steps
    since start_step and n those from start_step to end_step:

        constant         `rate` from the first step after start_step on
        linear           e(i) = 1 - i / n
        exponential      e(i) = k^i, with k = LEFT^(1/n), so that e(0) = 1 and e(n) = LEFT
        inverse_sigmoid  e(i) = k / (k + exp(i/k)), with k the root of k * ln(k (1 - LEFT) / LEFT) = n, so that
                         e(n) = LEFT; e(0) = k / (k + 1), which is nearly 1 where n is in the hundreds or more

    Args:
        step: Counted from 1, as that of the learning rate. Nothing else is known of the past, so the schedule is the
            same on every process and goes on where it was after a resume.
        sampling: The options.

    Source:
        Bengio et al. 2015, arXiv:1506.03099, section 2.4. Deviations: they let k be chosen freely; here it follows from
        start and end, and the decays are stretched a little to begin at 1 and end at 1 - rate exactly.
    """
    past, length = step - sampling.start_step, sampling.end_step - sampling.start_step
    if past <= 0:
        return 0.0
    if past >= length or sampling.schedule is MixingSchedule.constant:
        return sampling.rate
    if sampling.schedule is MixingSchedule.linear:
        return sampling.rate * past / length
    if sampling.schedule is MixingSchedule.exponential:
        return sampling.rate * (1 - math.pow(LEFT, past / length)) / (1 - LEFT)
    k = _inverse_sigmoid_k(length)
    first, now, last = (k / (k + math.exp(i / k)) for i in (0, past, length))
    return sampling.rate * (first - now) / (first - last)


def _inverse_sigmoid_k(length: int) -> float:
    """The root k of k * ln(k (1 - LEFT) / LEFT) = length, by Newton's method.

    With a = (1 - LEFT) / LEFT and w = ln(a k) it is w * exp(w) = a * length.
    """
    product = length * (1 - LEFT) / LEFT
    w = math.log(1 + product)
    for _ in range(50):  # from above, where the function is convex: it never overshoots, and 6 are usually enough
        w -= (w - product * math.exp(-w)) / (1 + w)
    return length / w


@dataclass(frozen=True)
class Given:
    """What a pass is given at the target positions."""

    ids: Int[Tensor, "B T"]
    """Ids."""
    mixture: Mixture | None = None
    """What stands in the place of some of them."""


@dataclass(frozen=True)
class Target:
    """What a decoder is given of the right text, and what it learns to predict."""

    ids: Int[Tensor, "B T"]
    """What it is given at each position."""
    right: Int[Tensor, "B T"]
    """What it has to predict at each position."""
    counted: Bool[Tensor, "B T"]
    """Positions whose prediction counts."""
    replaceable: Bool[Tensor, "B T"]
    """Positions whose piece is what was to be predicted at the position before, so that a prediction can replace it."""


class Mixer:
    """Replaces pieces of one batch in each of its passes.

    Everything random is drawn here: one coin for each position, and as many more numbers as the options need.

    Args:
        model: Gives logits, and has the embeddings.
        target: The right text.
        share: Probability that a piece is replaced.
        sampling: How.
        barred: Ids that never stand in the place of another.
        chunk: Positions whose logits exist at a time.
    """

    def __init__(
        self,
        model: Transformer,
        target: Target,
        share: float,
        sampling: ScheduledSamplingConfig,
        barred: Sequence[int],
        chunk: int | None,
    ) -> None:
        self.model, self.target, self.sampling, self.chunk = model, target, sampling, chunk
        self.barred = torch.tensor(sorted(set(barred)), device=target.ids.device)
        self.quantiles: Tensor | None = None
        self.others: Tensor | None = None
        """Random pieces of the sentence, -1 where none stands in."""
        draws = torch.rand(target.ids.shape, device=target.ids.device)
        self.where = (draws < share) & target.replaceable
        self.is_chosen = sampling.choice is MixingChoice.random
        if sampling.replacement is Replacement.sample:
            self.quantiles = torch.rand(target.ids.shape, device=target.ids.device)
        if not self.is_chosen:
            self.others = _random_pieces(target.ids, target.replaceable)

    def mix(self, hidden: Float[Tensor, "B T D"]) -> Given:
        """What the next pass is given.

        Args:
            hidden: The output of the pass before, at the target positions.
        """
        if not self.is_chosen:
            self._choose(hidden)
        ids, where = self.target.ids, self.where
        if self.others is not None:
            random = self.others >= 0
            ids, where = self.others.where(random, ids), where & ~random
        before = hidden[:, :-1][where[:, 1:]]
        if self.sampling.replacement is Replacement.mixture:
            parts = in_chunks(self._mean, self.chunk, before)
            return Given(ids, Mixture(where, torch.cat(parts)))
        with torch.no_grad():
            if self.quantiles is None:
                predicted = in_chunks(self._best, self.chunk, before)
            else:
                predicted = in_chunks(self._drawn, self.chunk, before, self.quantiles[where])
        return Given(ids.masked_scatter(where, torch.cat(predicted)))

    @torch.no_grad()
    def _choose(self, hidden: Float[Tensor, "B T D"]) -> None:
        """Keep those of the replaced places that the model is sure of; where it is surest, other pieces stand in.

        The confidence is the probability of the right piece at the place where it would be predicted, by the first
        pass. It decides for all passes.

        Source:
            Liu et al. 2021, arXiv:2107.10427, section 3. Deviation: the share multiplies their rule, which is that of
            a share of 1: a place that the rule replaces is replaced with that probability.
        """
        assert self.others is not None
        right = self.target.right[:, :-1][self.where[:, 1:]]
        parts = in_chunks(self._confidence, self.chunk, hidden[:, :-1][self.where[:, 1:]], right)
        confidence = hidden.new_zeros(self.where.shape, dtype=torch.cat(parts).dtype)
        confidence = confidence.masked_scatter(self.where, torch.cat(parts))
        self.where = self.where & (confidence > self.sampling.sure)
        self.others = self.others.where(self.where & (confidence > self.sampling.surest), -1)
        self.is_chosen = True

    def _logits(self, hidden: Float[Tensor, "n D"]) -> Float[Tensor, "n V"]:
        """Those of the candidates."""
        return _widened(self.model.logits(hidden)).index_fill(1, self.barred, -torch.inf)

    def _best(self, hidden: Float[Tensor, "n D"]) -> Int[Tensor, " n"]:
        return self._logits(hidden).argmax(-1)

    def _drawn(self, hidden: Float[Tensor, "n D"], quantiles: Float[Tensor, " n"]) -> Int[Tensor, " n"]:
        """The pieces at quantiles of the distributions."""
        cumulated = (self._logits(hidden) / self.sampling.temperature).softmax(-1).cumsum(-1)
        # relative to the last sum, which rounding leaves a little off 1
        sought = quantiles[:, None].to(cumulated.dtype) * cumulated[:, -1:]
        return torch.searchsorted(cumulated, sought, right=True)[:, 0].clamp(max=cumulated.shape[1] - 1)

    def _mean(self, hidden: Float[Tensor, "n D"]) -> Float[Tensor, "n D"]:
        """The means of all candidates' embeddings, weighted by their probabilities."""
        table = self.model.target_table.weight
        return (self._logits(hidden) / self.sampling.temperature).softmax(-1).to(table.dtype) @ table

    def _confidence(self, hidden: Float[Tensor, "n D"], right: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """The probabilities of the right pieces."""
        return _widened(self.model.logits(hidden)).softmax(-1).gather(1, right[:, None])[:, 0]


def _widened(logits: Float[Tensor, "n V"]) -> Float[Tensor, "n V"]:
    """In float32, or in float64 when given that."""
    return logits if logits.dtype is torch.float64 else logits.float()


def _random_pieces(ids: Int[Tensor, "B T"], real: Bool[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """At each real position of a row the piece of a random real one of it; elsewhere what stands there."""
    counts = real.sum(1)
    pool = ids[real]  # row after row
    if len(pool) == 0:
        return ids
    first = (counts.cumsum(0) - counts)[:, None]
    place = first + (torch.rand(ids.shape, device=ids.device) * counts[:, None]).long()
    return pool[place.clamp(max=len(pool) - 1)].where(real, ids)
