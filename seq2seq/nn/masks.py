"""Every attention mask of the package. Boolean, True = may attend, broadcast to [B, H, queries, keys].

This is the convention of `torch.nn.functional.scaled_dot_product_attention`. The masks of `torch.nn.Transformer`
mean the opposite; they are inverted at the boundary and nowhere else.
"""

import torch

from seq2seq.shapes import Bool, Tensor


def padding_mask(valid: Bool[Tensor, "B S"]) -> Bool[Tensor, "B 1 1 S"]:
    """Which keys may be attended to: the real ones, the same for every head and query."""
    return valid[:, None, None, :]


def causal_mask(
    num_queries: int, num_past: int = 0, device: torch.device | None = None
) -> Bool[Tensor, "1 1 queries keys"]:
    """Which of `num_past + num_queries` keys each new query may attend to: the past, itself, nothing later.

    With a cache, query i stands at position num_past + i, so the triangle is shifted by the history's length.
    """
    full = torch.ones(num_queries, num_past + num_queries, dtype=torch.bool, device=device)
    return full.tril(diagonal=num_past)[None, None]
