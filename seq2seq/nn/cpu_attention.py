"""Attention as training on a CPU wants it: few passes, all weights at once, gradients written by hand.

torch's fused CPU kernel takes no dropout on the weights, and its small products for each head cost more than the whole
attention of sentences of usual length. Here all heads of a batch are one batched product, the weights [B, H, T, S] are
kept for the backward pass, and what surrounds the products works in place. The slow twin is
`scaled_dot_product_attention`.
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from seq2seq.nn.dropout import ByteChances, writes_gradients
from seq2seq.shapes import Bool, Float, Tensor

LONGEST = 128
"""Keys up to which this is faster than torch's kernel without dropout, whose memory does not grow with the weights."""


def suits(query: Tensor, num_keys: int, dropout: float) -> bool:
    """Whether training should attend in this way: on a CPU in full precision, with dropout or among few keys."""
    return writes_gradients(query) and (dropout > 0 or num_keys <= LONGEST)


def separate_heads(projected: Float[Tensor, "B T _"], nums: tuple[int, ...]) -> tuple[Tensor, ...]:
    """What one product gave, [B, T, (H + G + ...) * K], as tensors [B, H, T, K], [B, G, T, K], ... of their own.

    Each is laid out as batched products want it. One copy on the way there and one on the way back.

    Args:
        projected: Heads side by side.
        nums: Heads of each tensor.
    """
    parts: tuple[Tensor, ...] = _SeparateHeads.apply(projected, nums)  # type: ignore[no-untyped-call]
    return parts


class _SeparateHeads(torch.autograd.Function):
    """The gradients of all tensors are written to their places in one."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, nums: tuple[int, ...]) -> tuple[Tensor, ...]:
        batch, length, width = projected.shape
        ctx.nums, ctx.shape = nums, projected.shape
        heads = projected.view(batch, length, sum(nums), width // sum(nums)).transpose(1, 2)
        return tuple(part.contiguous() for part in torch.split(heads, list(nums), 1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        batch, length, width = ctx.shape
        together = grads[0].new_empty(batch, length, sum(ctx.nums), width // sum(ctx.nums))
        for part, grad in zip(torch.split(together.transpose(1, 2), list(ctx.nums), 1), grads, strict=True):
            part.copy_(grad)
        return together.view(ctx.shape), None


def attend(
    query: Float[Tensor, "B H T K"],
    key: Float[Tensor, "B G S K"],
    value: Float[Tensor, "B G S K"],
    mask: Bool[Tensor, "#B 1 #T S"] | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Float[Tensor, "B T HK"]:
    """softmax(q k^T / sqrt(K)) v with weights dropped, heads side by side.

    A query that may attend to nothing gets zeros, as from torch's kernels.

    Args:
        query: Of all H heads.
        key: Of G heads; each serves H / G neighbouring query heads.
        value: The same.
        mask: True where a key may be attended to.
        causal: No position attends to a later one; only with as many queries as keys.
        dropout: Probability that a weight is dropped, rounded as `Dropout` does; the others are scaled.

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, equation 1, with dropout on the weights as in the authors' later code.
    """
    kept, scale = None, 1.0
    if dropout > 0:
        chances = ByteChances(dropout)
        kept, scale = chances.draw(torch.Size((*query.shape[:3], key.shape[2]))), chances.scale
    blocked = _blocked(query, mask, causal)
    context: Tensor = _Attention.apply(query, key, value, blocked, kept, scale)  # type: ignore[no-untyped-call]
    return context


def _blocked(query: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    """What is added to the scores: 0 where a key may be attended to and minus infinity elsewhere."""
    if causal:
        assert mask is None, "a mask says all"
        return query.new_full((query.shape[2], query.shape[2]), -torch.inf).triu_(1)
    if mask is None:
        return None
    return query.new_zeros(mask.shape).masked_fill_(~mask, -torch.inf)


class _Attention(torch.autograd.Function):
    """All heads of a batch at once: [B * G, H / G * T, K] queries against [B * G, S, K] keys.

    With w = softmax(s), dropped weights u = w * m, and context c = u v:
    dv = u^T dc,  dw = m * (dc v^T),  ds = w * (dw - sum(dw * w)),  dq = ds k,  dk = ds^T q.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        blocked: Tensor | None,
        kept: Tensor | None,
        scale: float,
    ) -> Tensor:
        batch, num_heads, length, width = query.shape
        scores = _products(_batched(query, key), key.flatten(0, 1).transpose(1, 2), width**-0.5)
        scores = scores.view(batch, num_heads, length, key.shape[2])
        if blocked is not None:
            scores.add_(blocked)
        weights = _softmax(scores, blocked)
        used = weights if kept is None else kept.to(weights.dtype).mul_(weights)
        context = torch.bmm(_batched(used, key), value.flatten(0, 1)).view(query.shape)
        ctx.save_for_backward(query, key, value, weights, kept)
        ctx.scale = scale
        merged = query.new_empty(batch, length, num_heads, width)
        return torch.mul(context.transpose(1, 2), scale, out=merged).flatten(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, weights, kept = ctx.saved_tensors
        batch, num_heads, length, width = query.shape
        of_context = _batched(grad.reshape(batch, length, num_heads, width).transpose(1, 2), key)
        of_weights = _products(of_context, value.flatten(0, 1).transpose(1, 2), ctx.scale).view(weights.shape)
        used = weights
        if kept is not None:
            mask = kept.to(weights.dtype)
            of_weights.mul_(mask)
            used = mask.mul_(weights)
        of_value = _products(_batched(used, key).transpose(1, 2), of_context, ctx.scale)
        of_scores = _batched(_of_scores(of_weights, weights), key)
        of_query = _products(of_scores, key.flatten(0, 1), width**-0.5)
        of_key = _products(of_scores.transpose(1, 2), _batched(query, key), width**-0.5)
        return of_query.view(query.shape), of_key.view(key.shape), of_value.view(value.shape), None, None, None


FUSED = 16
"""Keys from which torch's softmax is faster than one pass after the other: it works on so many at a time."""


def _softmax(scores: Float[Tensor, "B H T S"], blocked: Tensor | None) -> Float[Tensor, "B H T S"]:
    """The weights of scores that have `blocked` added and may be written over; 0 where nothing may be attended to."""
    if scores.shape[3] >= FUSED and (blocked is None or not bool((blocked == -torch.inf).all(-1).any())):
        return scores.softmax(-1)
    limits = torch.finfo(scores.dtype)  # keep rows in which nothing may be attended to from 0 / 0
    weights = scores.sub_(scores.amax(-1, keepdim=True).clamp_min_(limits.min)).exp_()
    return weights.div_(weights.sum(-1, keepdim=True).clamp_min_(limits.tiny))


def _of_scores(of_weights: Float[Tensor, "B H T S"], weights: Float[Tensor, "B H T S"]) -> Float[Tensor, "B H T S"]:
    """The gradient of the scores, given that of the weights, which may be written over."""
    if weights.shape[3] >= FUSED:
        found: Tensor = torch.ops.aten._softmax_backward_data(of_weights, weights, -1, weights.dtype)
        return found
    return of_weights.sub_((of_weights * weights).sum(-1, keepdim=True)).mul_(weights)


def _products(left: Float[Tensor, "b n m"], right: Float[Tensor, "b m k"], scale: float) -> Float[Tensor, "b n k"]:
    """scale * (left @ right) of each pair; the factor is taken into the products."""
    return torch.baddbmm(left.new_empty(()), left, right, beta=0, alpha=scale)


def _batched(x: Float[Tensor, "B H T width"], key: Float[Tensor, "B G S K"]) -> Float[Tensor, "BG HGT width"]:
    """Query heads that share keys, one below the other."""
    groups = key.shape[1]
    return x.reshape(len(x) * groups, x.shape[1] // groups * x.shape[2], x.shape[3])
