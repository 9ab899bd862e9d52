"""A model that chooses among some pieces of its vocabulary alone, which costs that many rows of its output matrix."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from seq2seq.models.ensemble import Ensemble, EnsembleState
from seq2seq.models.transformer import State, Transformer
from seq2seq.shapes import Bool, Float, Int, Tensor

ModelState = State | EnsembleState

FOREIGN = -45.0
"""Added to the logits of pieces that are in the batch for other sentences' sake.

They weigh nothing then (e^-45 is below the precision of float64), and torch's exponentials are not slow, as they are
where they give 0 or nearly so: ten times as slow. The search has to forbid these pieces besides: `Narrowed.forbidden`.
"""


@dataclass(frozen=True)
class NarrowedState:
    """What a narrowed model remembers between steps: the model's own state, and whose row each row is."""

    model: ModelState
    owners: Tensor
    """[R], on the CPU: the sentence that each row belongs to, as the batch was started with."""

    def select(
        self, rows: Int[Tensor, " R2"], sentences: Int[Tensor, " B2"], places: Int[Tensor, " R2"] | None = None
    ) -> "NarrowedState":
        """The state of hypotheses `rows` of the sentences that go on, as the model's own state does it."""
        return NarrowedState(self.model.select(rows, sentences, places), self.owners[rows.cpu()])

    def watch(self, layer: int, head: int | None) -> "NarrowedState":
        """The same, the attention of a layer of the model added up from now on."""
        return NarrowedState(self.model.watch(layer, head), self.owners)

    def num_bytes(self) -> int:
        """Bytes that the buffers take."""
        return self.model.num_bytes()


class Narrowed:
    """`start` and `step` of a model, among some pieces: tokens and columns of logits are places among them.

    The rows of the output matrix that are needed are put together once. A sentence's log-probabilities do not depend on
    the batch that it is in, although the batch's pieces do: those that are not the sentence's own weigh nothing.

    Args:
        model: What predicts.
        allowed: For each sentence of the batch, and each piece of the vocabulary, whether it may choose that.
        forbids: Whether logits of pieces that are there for other sentences' sake are -inf, and the search need not
            forbid them; for searches that do not exponentiate logits, or not by torch.
    """

    def __init__(self, model: Transformer | Ensemble, allowed: Bool[Tensor, "B V"], *, forbids: bool = False) -> None:
        self._model = model
        device = model.output.device
        pieces = allowed.any(0).nonzero()[:, 0]
        self.pieces: list[int] = pieces.tolist()
        """Ids, ascending."""
        self._ids = pieces.to(device)
        foreign = ~allowed[:, pieces]
        apart = foreign.to(device) if bool(foreign.any()) else None
        self.forbidden = None if forbids else apart
        """[B, n], the pieces that a search must not let a sentence have; None if there are none."""
        self._projections = [
            _projection(member, self._ids, apart, forbids)
            for member in (model.members if isinstance(model, Ensemble) else [model])
        ]

    def start(self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"]) -> NarrowedState:
        """The state that decoding begins with, one row a sentence."""
        return NarrowedState(self._model.start(src, src_valid), torch.arange(len(src)))

    def step(self, tokens: Int[Tensor, "R 1"], state: NarrowedState) -> tuple[Float[Tensor, "R n"], NarrowedState]:
        """Logits of the pieces after the given ones, and the state with them added. The old state is used up."""
        ids = self._ids[tokens]
        owners = state.owners.to(ids.device)
        if isinstance(self._model, Ensemble):
            assert isinstance(state.model, EnsembleState)
            members = list(zip(self._model.members, state.model.members, self._projections, strict=True))
            logits, after = [], []
            for member, own, project in members:
                hidden, own = member.step_hidden(ids, own)
                logits.append(project(hidden, owners))
                after.append(own)
            return self._model.mean(logits), NarrowedState(EnsembleState(tuple(after)), state.owners)
        assert not isinstance(state.model, EnsembleState)
        hidden, own = self._model.step_hidden(ids, state.model)
        return self._projections[0](hidden, owners), NarrowedState(own, state.owners)


Projection = Callable[[Float[Tensor, "R D"], Int[Tensor, " R"]], Float[Tensor, "R n"]]
"""Logits of the pieces from the output of the last layer and the sentence that each row belongs to."""


def _projection(
    model: Transformer, pieces: Int[Tensor, " n"], foreign: Bool[Tensor, "B n"] | None, forbids: bool
) -> Projection:
    """The projection of one model onto these pieces."""
    project = model.projected_onto(pieces)
    if foreign is None:
        return lambda hidden, owners: project(hidden)
    if forbids:
        return lambda hidden, owners: project(hidden).masked_fill_(foreign.index_select(0, owners), -torch.inf)
    added = FOREIGN * foreign.to(model.output.dtype)
    return lambda hidden, owners: project(hidden).add_(added.index_select(0, owners))
