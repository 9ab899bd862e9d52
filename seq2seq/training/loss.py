"""Label-smoothed cross-entropy and the plain negative log-likelihood, from one pass over the logits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from seq2seq.models import Transformer
from seq2seq.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True)
class BatchLoss:
    """Sums over the pieces of a batch, in nats, and how many of them the model would have got right.

    Attributes:
        loss: The smoothed loss of all that is trained on.
        nll: Negative log-likelihood of the target's pieces alone, whatever is trained on.
        correct: How many of the target's pieces the model would have got right.
        source_nll: Negative log-likelihood of source and separator; None where they are not trained on.
        further: More that is added up for the log, by the names of the sums.
    """

    loss: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    correct: Tensor
    source_nll: Float[Tensor, ""] | None = None
    further: Mapping[str, Tensor] = field(default_factory=dict)


def batch_loss(
    model: Transformer,
    hidden: Float[Tensor, "B T D"],
    targets: Int[Tensor, "B T"],
    counted: Bool[Tensor, "B T"],
    smoothing: float,
    chunk: int | None = None,
) -> BatchLoss:
    """Loss at the places that count.

    All others, padding among them, are dropped before the projection onto the vocabulary: they cost nothing there and
    cannot count in the loss.

    Args:
        model: Has the projection.
        hidden: The output at every place.
        targets: The right piece of every place.
        counted: Which places count.
        smoothing: Mass spread evenly.
        chunk: Places whose logits exist at one time; None for all.
    """
    del chunk
    targets = targets[counted]
    logits = model.logits(hidden[counted])
    loss, nll = smoothed_cross_entropy(logits, targets, smoothing)
    return BatchLoss(loss, nll, (logits.detach().argmax(-1) == targets).sum())


def smoothed_cross_entropy(
    logits: Float[Tensor, "n V"], targets: Int[Tensor, " n"], smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The training loss and the negative log-likelihood, both in nats and summed over the n positions.

    With q(k) = (1 - smoothing) [k = target] + smoothing / V and log-probabilities log p(k), the loss is
    -sum_k q(k) log p(k); the mass is spread over all V pieces, the target and the special ones included. Padded
    positions are not among the n: they are left out before the projection onto the vocabulary.

    Args:
        logits: Any float precision; computed in float32, or in float64 when given that.
        targets: Id of the right piece at each position.
        smoothing: Mass spread evenly; 0 gives the plain negative log-likelihood.

    Returns:
        The loss, through which gradients flow, and the negative log-likelihood, through which none do: perplexity is
        the exponential of its mean, whatever the smoothing.

    Source:
        Szegedy et al. 2016, arXiv:1512.00567, section 7; the same as torch's `cross_entropy(label_smoothing=...)`.
    """
    if logits.dtype not in (torch.float32, torch.float64):
        logits = logits.float()
    loss, nll = _SmoothedCrossEntropy.apply(logits, targets, smoothing)  # type: ignore[no-untyped-call]
    return loss, nll


class _SmoothedCrossEntropy(torch.autograd.Function):
    """One [n, V] tensor is kept for the backward pass instead of the several that composed operations keep."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        log_probs = logits.log_softmax(-1)
        nll = -log_probs.gather(1, targets[:, None]).sum()
        loss = (1 - smoothing) * nll - smoothing * log_probs.mean(-1).sum() if smoothing else nll.clone()
        ctx.save_for_backward(log_probs, targets)
        ctx.smoothing = smoothing
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        log_probs, targets = ctx.saved_tensors
        gradient = log_probs.exp()
        if ctx.smoothing:
            gradient -= ctx.smoothing / gradient.shape[1]
        gradient[torch.arange(len(targets), device=targets.device), targets] -= 1 - ctx.smoothing
        return gradient.mul_(grad), None, None
