"""What a search, a trainer and a translator ask of a network, whatever its architecture."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import torch
from torch import nn
from torch.nn.functional import linear

from seq2seq.models.estimated import EstimatedProjection, RoughLogits
from seq2seq.models.stack import Execution, Stack
from seq2seq.nn.cache import CausalState, DecoderState
from seq2seq.nn.embedding import Mixture
from seq2seq.nn.pool import PooledState
from seq2seq.search.step import Ranking
from seq2seq.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of one forward pass, a tensor for each layer; each row of a tensor sums to 1 over keys."""

    encoder: list[Tensor]
    """[B, H, S, S] for each encoder layer; none in a decoder-only model."""
    decoder: list[Tensor]
    """[B, H, T, T] for each decoder layer, zero above the diagonal. Decoder-only: over source and target in a row."""
    cross: list[Tensor]
    """[B, H, T, S] for each decoder layer; none in a decoder-only model."""


@runtime_checkable
class Projection(Protocol):
    """Gives logits from the output of the last layer."""

    def __call__(self, hidden: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Logits of all pieces."""
        ...

    def only(self, pieces: Int[Tensor, " n"]) -> "Projection":
        """The projection onto some pieces."""
        ...


class Compiled(Protocol):
    """Decodes by compiled code."""

    def start(self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"]) -> PooledState:
        """The state that decoding begins with."""
        ...

    def step(self, tokens: Int[Tensor, "R 1"], state: PooledState) -> tuple[Float[Tensor, "R D"], PooledState]:
        """The output at the given pieces, and the state after them. The old state is used up."""
        ...


State = DecoderState | CausalState | PooledState


class Transformer(nn.Module, ABC):
    """Source ids and target ids so far in, logits of the next target piece out.

    Attributes:
        output: The [V, D] matrix that gives logits; may be the target embedding's table.
        output_bias: [V], added to the logits; None without.
        execution: How it computes in training; set by `execute`.
        projection: What gives logits in the place of `output` and its bias, rounded; None as long as these do.
        ranking: Ranks pieces for a beam search; set where a model only decodes, and that is faster.
        estimated: Finds the best pieces without all logits; set where a model only decodes, and that is faster.
        compiled: Decodes in the place of the modules; set where a model only decodes. What it begins with is a state
            of its own, which `step` gives back to it.

    Source:
        Tying: Press and Wolf 2017, arXiv:1608.05859.
    """

    output: nn.Parameter
    output_bias: nn.Parameter | None
    execution: Execution = Execution()
    projection: Projection | None
    ranking: Ranking | None = None
    estimated: EstimatedProjection | None = None
    compiled: "Compiled | None" = None

    def __init__(self) -> None:
        super().__init__()
        self.projection = None

    def forward(
        self,
        src: Int[Tensor, "B S"],
        src_valid: Bool[Tensor, "B S"],
        tgt_in: Int[Tensor, "B T"],
        tgt_valid: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits of every target position: row t is the distribution of the piece after tgt_in[:, t].

        Args:
            src: Source ids, EOS at the end, padded on either side.
            src_valid: True at real source positions.
            tgt_in: Target ids with BOS in front, padded on the right.
            tgt_valid: True at real target positions. It changes no output at one of them; but without it padding
                counts as target where source and target in a row are measured against learned positions.
        """
        return self.logits(self.decode(src, src_valid, tgt_in, tgt_valid))

    def execute(self, how: Execution) -> None:
        """Compute so in training from now on. Evaluation, decoding among it, is always done in the plain way."""
        self.execution = how
        for module in self.modules():
            if isinstance(module, Stack):
                module.execution = how

    @property
    def packs(self) -> bool:
        """Whether real positions alone are computed now."""
        return self.training and any(
            isinstance(part, Stack) and part.execution.padding_free for part in self.children()
        )

    def logits(self, hidden: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Projection onto the vocabulary."""
        if self.projection is not None:
            return self.projection(hidden)
        return linear(hidden, self.output, self.output_bias)

    def projected_onto(self, pieces: Int[Tensor, " n"]) -> Callable[[Float[Tensor, "R D"]], Float[Tensor, "R n"]]:
        """What gives the logits of some pieces alone, in their order. Their weights are copied once."""
        if self.projection is not None:
            return self.projection.only(pieces)
        weight = self.output.detach().index_select(0, pieces)
        bias = None if self.output_bias is None else self.output_bias.detach().index_select(0, pieces)
        return lambda hidden: linear(hidden, weight, bias)

    @abstractmethod
    def decode(
        self,
        src: Int[Tensor, "B S"],
        src_valid: Bool[Tensor, "B S"],
        tgt_in: Int[Tensor, "B T"],
        tgt_valid: Bool[Tensor, "B T"] | None = None,
        mixture: Mixture | None = None,
        memory: Float[Tensor, "B S D"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The output at every target position, before the projection onto the vocabulary.

        Args:
            src: As in `forward`.
            src_valid: As in `forward`.
            tgt_in: As in `forward`.
            tgt_valid: As in `forward`.
            mixture: What stands in the place of some target ids.
            memory: What `read_source` gave, so that the source is not read again for another pass over the target.
        """

    @abstractmethod
    def read_source(self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"]) -> Float[Tensor, "B S D"] | None:
        """What all passes over a batch's target have in common: the encoder's output; None where there is nothing."""

    @abstractmethod
    def start(self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"]) -> State:
        """The state that decoding begins with: the source read, no target piece seen."""

    def step(self, tokens: Int[Tensor, "R T"], state: State) -> tuple[Float[Tensor, "R V"], State]:
        """Logits after the last of the given pieces, and the state with them added. The old state is used up."""
        hidden, state = self.step_hidden(tokens, state)
        return self.logits(hidden), state

    def estimated_step(
        self, tokens: Int[Tensor, "R T"], state: State
    ) -> tuple[RoughLogits | Float[Tensor, "R V"], State]:
        """As `step`, but with estimates of the logits where there is something that makes them."""
        hidden, state = self.step_hidden(tokens, state)
        if self.estimated is None or not self.estimated.suits(hidden):
            return self.logits(hidden), state
        return self.estimated(hidden, partial(self.logits, hidden)), state

    @abstractmethod
    def step_hidden(self, tokens: Int[Tensor, "R T"], state: State) -> tuple[Float[Tensor, "R D"], State]:
        """The output at the last of the given pieces, and the state with them added. The old state is used up."""

    @property
    @abstractmethod
    def target_table(self) -> nn.Embedding:
        """The table that target ids are looked up in."""

    @property
    @abstractmethod
    def source_rows(self) -> int:
        """Rows of the table that source ids are looked up in."""

    @torch.no_grad()
    def attention_maps(
        self,
        src: Int[Tensor, "B S"],
        src_valid: Bool[Tensor, "B S"],
        tgt_in: Int[Tensor, "B T"],
        tgt_valid: Bool[Tensor, "B T"] | None = None,
    ) -> AttentionMaps:
        """The attention weights of every layer and head, computed beside a plain forward pass without dropout."""
        training = self.training
        self.eval()
        try:
            return self._attention_maps(src, src_valid, tgt_in, tgt_valid)
        finally:
            self.train(training)

    @abstractmethod
    def _attention_maps(
        self,
        src: Int[Tensor, "B S"],
        src_valid: Bool[Tensor, "B S"],
        tgt_in: Int[Tensor, "B T"],
        tgt_valid: Bool[Tensor, "B T"] | None = None,
    ) -> AttentionMaps: ...

    @torch.no_grad()
    def cross_weights(
        self,
        src: Int[Tensor, "B S"],
        src_valid: Bool[Tensor, "B S"],
        tgt_in: Int[Tensor, "B T"],
        tgt_valid: Bool[Tensor, "B T"] | None = None,
        *,
        layer: int,
        head: int | None = None,
    ) -> Float[Tensor, "B T S"]:
        """How much each target position looks at each source position, in one decoder layer; each row sums to 1.

        Row t is what the position of tgt_in[:, t] sees, which predicts the piece after it. Layers behind that one are
        not computed. In a decoder-only model, whose positions look at the target too, a head's weights are shared out
        anew over the source without its EOS; that has the weight 0, since such a model never reads it.

        Args:
            src: As in `forward`.
            src_valid: As in `forward`.
            tgt_in: As in `forward`.
            tgt_valid: As in `forward`.
            layer: Of the decoder, from 0.
            head: Of it, from 0; None takes the mean of all.
        """
        training = self.training
        self.eval()
        try:
            weights = self._cross_weights(src, src_valid, tgt_in, tgt_valid, layer)
        finally:
            self.train(training)
        return weights.mean(1) if head is None else weights[:, head]

    @abstractmethod
    def _cross_weights(
        self,
        src: Int[Tensor, "B S"],
        src_valid: Bool[Tensor, "B S"],
        tgt_in: Int[Tensor, "B T"],
        tgt_valid: Bool[Tensor, "B T"] | None,
        layer: int,
    ) -> Float[Tensor, "B H T S"]: ...

    def num_parameters(self) -> int:
        """Trained numbers, tied ones counted once."""
        return sum(parameter.numel() for parameter in self.parameters())
