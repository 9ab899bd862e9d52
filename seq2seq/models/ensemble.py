"""Several models that predict as one: the weighted mean of what they give."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import cast

import torch
from torch import nn

from seq2seq.config import Average
from seq2seq.models.transformer import State, Transformer
from seq2seq.nn.attended import Attended
from seq2seq.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True)
class EnsembleState:
    """What an ensemble remembers between steps: a value, made of its members' states in their order."""

    members: tuple[State, ...]

    def select(
        self, rows: Int[Tensor, " R2"], sentences: Int[Tensor, " B2"], places: Int[Tensor, " R2"] | None = None
    ) -> "EnsembleState":
        """Every member's state of hypotheses `rows` of the sentences that go on."""
        return EnsembleState(tuple(member.select(rows, sentences, places) for member in self.members))

    @property
    def attended(self) -> Attended | None:
        """What the first member has looked at."""
        return self.members[0].attended

    def watch(self, layer: int, head: int | None) -> "EnsembleState":
        """The same, the attention of a layer of the first member added up from now on."""
        first, *others = self.members
        return EnsembleState((first.watch(layer, head), *others))

    def num_bytes(self) -> int:
        """Bytes that the buffers of all members take."""
        return sum(member.num_bytes() for member in self.members)


class Ensemble(nn.Module):
    """Source ids and target ids so far in, logits of the mean prediction out.

    It decodes and scores as one model does, and is put into evaluation mode. Members may differ in architecture, size
    and precision.

    Args:
        members: At least one, for the same vocabularies, on one device.
        weights: How much each member counts; only their ratios matter. None lets all count alike.
        average: What the mean is taken of.

    Raises:
        ValueError: if there is no member, weights do not fit, or vocabularies or devices differ.

    Source:
        Genest and Zidek 1986, "Combining probability distributions": the linear opinion pool (mean of
        probabilities) and the logarithmic opinion pool (of log-probabilities, renormalised).
    """

    def __init__(
        self,
        members: Sequence[Transformer],
        weights: Sequence[float] | None = None,
        average: Average = Average.probability,
    ) -> None:
        super().__init__()
        if not members:
            raise ValueError("an ensemble has 0 members, expected at least one model")
        self.weights = normalized(weights if weights is not None else [1.0] * len(members), len(members))
        first = members[0]
        for number, member in enumerate(members, start=1):
            for side, rows, expected in (
                ("source", member.source_rows, first.source_rows),
                ("target", len(member.output), len(first.output)),
            ):
                if rows != expected:
                    raise ValueError(
                        f"model {number} of the ensemble has {rows} rows for the {side} vocabulary, the first one has "
                        f"{expected}; give models of the same vocabularies (and the same vocab_multiple)"
                    )
            if member.output.device != first.output.device:
                raise ValueError(
                    f"model {number} of the ensemble is on {member.output.device}, the first one on "
                    f"{first.output.device}; put all on one device"
                )
        self.average = average
        self.models = nn.ModuleList(members)
        self.eval()

    @property
    def members(self) -> list[Transformer]:
        """The models."""
        return [cast(Transformer, model) for model in self.models]

    @property
    def output(self) -> nn.Parameter:
        """The first member's [V, D] matrix, which tells the device and the number of outputs."""
        return self.members[0].output

    def forward(
        self,
        src: Int[Tensor, "B S"],
        src_valid: Bool[Tensor, "B S"],
        tgt_in: Int[Tensor, "B T"],
        tgt_valid: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits of every target position, as `Transformer.forward` gives them."""
        return self.mean([member(src, src_valid, tgt_in, tgt_valid) for member in self.members])

    def start(self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"]) -> EnsembleState:
        """The state that decoding begins with: the source read by all, no target piece seen."""
        return EnsembleState(tuple(member.start(src, src_valid) for member in self.members))

    def step(self, tokens: Int[Tensor, "R T"], state: EnsembleState) -> tuple[Float[Tensor, "R V"], EnsembleState]:
        """Logits after the last of the given pieces, and the state with them added. The old state is used up."""
        steps = [member.step(tokens, own) for member, own in zip(self.members, state.members, strict=True)]
        return self.mean([logits for logits, _ in steps]), EnsembleState(tuple(after for _, after in steps))

    def mean(self, logits: Sequence[Float[Tensor, "*rows V"]]) -> Float[Tensor, "*rows V"]:
        """One row of logits for each row of the members', in float32, or float64 where a member has that.

        Their softmax is the mean distribution. The constant that logits are free to have is the mean of the members'
        own, so that what edits logits finds them as a single model gives them: equal members give exactly their own.
        """
        double = any(own.dtype is torch.float64 for own in logits)
        rows = [own.to(torch.float64 if double else torch.float32) for own in logits]
        if self.average is Average.log_probability:
            # log-softmax subtracts a constant from each member's row, so the mean of the logits themselves will do
            return _weighted_sum(rows, self.weights)
        constants = [own.logsumexp(-1, keepdim=True) for own in rows]
        mean_constant = _weighted_sum(constants, self.weights)
        rows = [own - (constant - mean_constant) for own, constant in zip(rows, constants, strict=True)]
        best = reduce(torch.maximum, rows)
        best = best.masked_fill(best == -torch.inf, 0.0)  # where all members give 0
        return _weighted_sum([(own - best).exp() for own in rows], self.weights).log() + best


def normalized(weights: Sequence[float], count: int) -> list[float]:
    """The weights, divided by their sum.

    Raises:
        ValueError: if there are not `count`, or one is not a positive number.
    """
    if len(weights) != count:
        raise ValueError(f"got {len(weights)} weights for {count} models; give one for each, in their order")
    for weight in weights:
        if not (math.isfinite(weight) and weight > 0):
            raise ValueError(f"weights has {weight}, expected positive numbers; leave out a model that is not to count")
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _weighted_sum(rows: Sequence[Float[Tensor, "*rows n"]], weights: Sequence[float]) -> Float[Tensor, "*rows n"]:
    total = rows[0] * weights[0]
    for own, weight in zip(rows[1:], weights[1:], strict=True):
        total = total.add_(own, alpha=weight)
    return total
