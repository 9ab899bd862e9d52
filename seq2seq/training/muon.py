"""Muon for the matrices of the layers and AdamW for everything else, as one optimiser."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from seq2seq.models import Transformer
from seq2seq.nn.attention import CrossAttention, SelfAttention
from seq2seq.nn.feed_forward import FeedForward

_MATRICES = "matrices"


class MuonWithAdamW(Optimizer):
    """One optimiser, so that a training step counts once; its state is that of both, by parameter.

    Matrices that only lie together in memory (queries, keys and values; the two halves of a gated feed-forward network)
    are orthogonalised one by one: as a whole their steps would depend on one another, and Muon's authors found queries,
    keys and values to learn better apart.

    Args:
        matrices: What Muon trains.
        rest: Groups of what AdamW trains.
        muon: Constants of `torch.optim.Muon`.
        adamw: Constants of `torch.optim.AdamW`.
        stacked: For the id of each stacked matrix the numbers of rows of its parts.

    Raises:
        ValueError: if this version of torch has no Muon.

    Source:
        Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks", with Nesterov's momentum, five
        Newton-Schulz iterations and a step times sqrt(max(1, rows / columns)), as in its code; weight decay as in Liu
        et al. 2025, arXiv:2502.16982, section 2.2.
    """

    def __init__(
        self,
        matrices: Sequence[nn.Parameter],
        rest: list[dict[str, Any]],
        muon: Mapping[str, Any],
        adamw: Mapping[str, Any],
        stacked: Mapping[int, list[int]],
    ) -> None:
        if not hasattr(torch.optim, "Muon"):
            raise ValueError(
                f"optim.optimizer=muon needs torch 2.9 or later, this is torch {torch.__version__}; update it, or "
                "choose optim.optimizer=adamw"
            )
        rows = {matrix: stacked.get(id(matrix), [matrix.shape[0]]) for matrix in matrices}
        self._parts = {
            matrix: [nn.Parameter(part) for part in torch.split(matrix.detach(), rows[matrix])] for matrix in matrices
        }
        self._muon = torch.optim.Muon([part for parts in self._parts.values() for part in parts], lr=0.0, **muon)
        self._adamw = AdamW(rest, lr=0.0, **adamw) if rest else None
        group = {"params": list(matrices), "name": _MATRICES, **self._muon.defaults}
        super().__init__([group, *(self._adamw.param_groups if self._adamw is not None else [])], {})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Both optimisers' steps, each over its own parameters."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if group["name"] == _MATRICES:
                self._step_matrices(group)
        if self._adamw is not None:
            # loading a state replaces both, so they are handed over at every step
            self._adamw.state = self.state
            self._adamw.param_groups = [group for group in self.param_groups if group["name"] != _MATRICES]
            self._adamw.step()
        return loss

    def _step_matrices(self, group: dict[str, Any]) -> None:
        """Muon's step over the parts of the matrices, which are views of weights, gradients and momentum."""
        self._muon.param_groups[0].update({name: value for name, value in group.items() if name in self._muon.defaults})
        for matrix, parts in self._parts.items():
            if matrix.grad is None:
                for part in parts:
                    part.grad = None
                continue
            state = self.state[matrix]
            if not state:
                state["momentum_buffer"] = torch.zeros_like(matrix.grad)
            rows = [part.shape[0] for part in parts]
            views = (torch.split(whole, rows) for whole in (matrix.detach(), matrix.grad, state["momentum_buffer"]))
            for part, weight, gradient, momentum in zip(parts, *views, strict=True):
                part.data, part.grad = weight, gradient
                self._muon.state[part]["momentum_buffer"] = momentum
        self._muon.step()  # type: ignore[no-untyped-call]


def stacked_rows(model: Transformer) -> dict[int, list[int]]:
    """For the id of each matrix that holds several, their numbers of rows."""
    found: dict[int, list[int]] = {}
    for module in model.modules():
        if isinstance(module, SelfAttention):
            heads = module.heads
            found[id(module.query_key_value.weight)] = [heads.query_width, heads.kv_width, heads.kv_width]
        elif isinstance(module, CrossAttention):
            found[id(module.key_value.weight)] = [module.heads.kv_width] * 2
        elif isinstance(module, FeedForward) and module.gated:
            found[id(module.inner.weight)] = [module.inner.weight.shape[0] // 2] * 2
    return found
