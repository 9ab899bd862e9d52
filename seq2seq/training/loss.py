"""Label-smoothed cross-entropy and the plain negative log-likelihood, with never more than a chunk of the logits."""

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

    All others, padding among them, are left out of the projection onto the vocabulary: they cost nothing there and
    cannot count in the loss. A piece is right if no other one has a higher logit.

    Args:
        model: Has the projection.
        hidden: The output at every place.
        targets: The right piece of every place.
        counted: Which places count.
        smoothing: Mass spread evenly.
        chunk: Places whose logits exist at one time; None for all.
    """
    rows = counted.flatten().nonzero().flatten()
    loss, nll, correct = projected_cross_entropy(
        hidden.reshape(-1, hidden.shape[2]),
        rows,
        targets.reshape(-1)[rows],
        model.output,
        model.output_bias,
        smoothing,
        chunk,
    )
    return BatchLoss(loss, nll, correct)


def projected_cross_entropy(
    hidden: Float[Tensor, "N D"],
    rows: Int[Tensor, " n"],
    targets: Int[Tensor, " n"],
    output: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"] | None,
    smoothing: float,
    chunk: int | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Int[Tensor, ""]]:
    """Training loss and negative log-likelihood, in nats and summed, and the number of pieces predicted rightly.

    The loss is that of `smoothed_cross_entropy` on the logits hidden[rows] @ output^T + bias. These are computed
    `chunk` rows at a time and turned in place, while they are at hand, into what they add to the gradients of the loss:
    the backward pass only scales those, and the [n, V] logits never exist whole.

    Args:
        hidden: Vectors.
        rows: Which of them count; each at most once.
        targets: The right piece of each row that counts.
        output: The projection.
        bias: Added to the logits; None without.
        smoothing: Mass spread evenly.
        chunk: Rows whose logits exist at one time; None for all.

    Returns:
        The loss, through which gradients flow to `hidden`, `output` and `bias`, and two numbers through which none do.
    """
    loss, nll, correct = _ProjectedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, output, bias, rows, targets, smoothing, chunk or max(1, len(rows)), torch.is_grad_enabled()
    )
    return loss, nll, correct


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Computes the gradients of the summed loss in the forward pass, as the logits are not kept for a backward one.

    With q(k) = (1 - smoothing) [k = target] + smoothing / V and probabilities p, the gradient of the logits is p - q.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        output: Tensor,
        bias: Tensor | None,
        rows: Tensor,
        targets: Tensor,
        smoothing: float,
        chunk: int,
        with_gradients: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        device = hidden.device.type
        narrow = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        wide = _wide(narrow)
        gradients = [
            torch.zeros_like(like, dtype=_wide(like.dtype)) if like is not None and needed and with_gradients else None
            for like, needed in zip((hidden, output, bias), ctx.needs_input_grad[:3], strict=True)
        ]
        nll, even = hidden.new_zeros((), dtype=wide), hidden.new_zeros((), dtype=wide)
        correct = torch.zeros((), dtype=torch.long, device=hidden.device)
        with torch.autocast(device, enabled=False):
            matrix = output.to(narrow)
            added = bias.to(narrow) if bias is not None else None
            column_sums = matrix.sum(0, dtype=wide)
            bias_sum = added.sum(dtype=wide) if added is not None else 0.0
            room = matrix.new_empty(min(chunk, len(rows)), len(matrix))
            for start in range(0, len(rows), chunk):
                some, right = rows[start : start + chunk], targets[start : start + chunk]
                vectors = hidden.index_select(0, some).to(narrow)
                logits = _project(vectors, matrix, added, room[: len(some)]).to(wide)
                picked, best = logits.gather(1, right[:, None]), logits.amax(-1, keepdim=True)
                correct += (picked == best).sum()
                shift = None if _are_near(best) else best
                total = (logits if shift is None else logits.sub_(shift)).exp_().sum(-1, keepdim=True)
                log_totals = (total.log() if shift is None else shift + total.log()).sum()
                nll += log_totals - picked.sum()
                vector_sum = vectors.sum(0, dtype=wide)
                even += log_totals - (vector_sum @ column_sums + len(some) * bias_sum) / len(matrix)
                if any(part is not None for part in gradients):
                    logits.scatter_add_(1, right[:, None], total * (smoothing - 1))
                    _add_gradients(gradients, logits, total, some, vectors, matrix)
                    _add_even_gradients(gradients, smoothing / len(matrix), some, vector_sum, column_sums)
        loss = (1 - smoothing) * nll + smoothing * even
        ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(nll, correct)
        return loss, nll, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [part * grad if part is not None else None for part in ctx.saved_tensors]  # autograd casts them
        return *scaled, None, None, None, None, None


NEAR = 40.0
"""The highest logits this close to 0 need not be taken off before all are exponentiated: nothing overflows, and what
becomes 0 is less than any rounding."""


def _are_near(best: Float[Tensor, "n 1"]) -> bool:
    """Whether a pass over the logits can be left out; on a CPU, where asking does not make anyone wait."""
    return best.device.type == "cpu" and bool((best.abs() < NEAR).all())


def _project(vectors: Tensor, matrix: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    """Logits, written to `out`: a chunk takes the place of the one before it."""
    if bias is None:
        return torch.mm(vectors, matrix.t(), out=out)
    return torch.addmm(bias, vectors, matrix.t(), out=out)


def _add_gradients(
    gradients: list[Tensor | None], of_logits: Tensor, total: Tensor, rows: Tensor, vectors: Tensor, matrix: Tensor
) -> None:
    """Add what a chunk contributes to the gradients of the vectors, the matrix and the bias that are wanted.

    The rows of `of_logits` are still to be divided by `total`. In full precision that is done to what they are
    multiplied with, which is smaller; in half precision they have to be brought into range first.
    """
    of_hidden, of_output, of_bias = gradients
    if of_bias is not None:
        of_bias += of_logits.t() @ total.reciprocal()[:, 0]
    if matrix.dtype != of_logits.dtype:
        of_logits, total = (of_logits / total).to(matrix.dtype), torch.ones_like(total, dtype=matrix.dtype)
    if of_hidden is not None:
        of_hidden.index_copy_(0, rows, ((of_logits @ matrix) / total).to(of_hidden.dtype))
    if of_output is not None and of_output.dtype == of_logits.dtype:
        of_output.addmm_(of_logits.t(), vectors / total)
    elif of_output is not None:
        of_output += of_logits.t() @ vectors


def _add_even_gradients(
    gradients: list[Tensor | None], even: float, rows: Tensor, vector_sum: Tensor, column_sums: Tensor
) -> None:
    """Add what the mass spread evenly contributes: the same to each of the rows, and to each row of the matrix."""
    of_hidden, of_output, of_bias = gradients
    if even and of_hidden is not None:
        of_hidden.index_add_(0, rows, column_sums.to(of_hidden.dtype).expand(len(rows), -1), alpha=-even)
    if even and of_output is not None:
        of_output.sub_(vector_sum, alpha=even)
    if even and of_bias is not None:
        of_bias.sub_(even * len(rows))


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The precision of softmax and sums: float32 for half precision."""
    return dtype if dtype in (torch.float32, torch.float64) else torch.float32


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
    log_probs = logits.to(_wide(logits.dtype)).log_softmax(-1)
    nll = -log_probs.gather(1, targets[:, None]).sum()
    loss = (1 - smoothing) * nll - smoothing * log_probs.mean(-1).sum() if smoothing else nll
    return loss, nll.detach()
