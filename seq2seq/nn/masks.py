"""Every attention mask of the package. Boolean, True = may attend, broadcast to [B, H, queries, keys].

This is the convention of `torch.nn.functional.scaled_dot_product_attention`. The masks of `torch.nn.Transformer`
mean the opposite; they are inverted at the boundary and nowhere else.
"""

import torch

from seq2seq.shapes import Bool, Float, Int, Tensor


def padding_mask(valid: Bool[Tensor, "B S"]) -> Bool[Tensor, "B 1 1 S"]:
    """Which keys may be attended to: the real ones, the same for every head and query."""
    return valid[:, None, None, :]


def additive(mask: Bool[Tensor, "*shape"] | None, dtype: torch.dtype) -> Float[Tensor, "*shape"] | None:
    """The mask as numbers to be added to scores: what attention makes of it each time that it is given a mask."""
    if mask is None:
        return None
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -torch.inf)


def causal_mask(
    num_queries: int, num_past: int = 0, device: torch.device | None = None
) -> Bool[Tensor, "1 1 queries keys"]:
    """Which of `num_past + num_queries` keys each new query may attend to: the past, itself, nothing later.

    With a cache, query i stands at position num_past + i, so the triangle is shifted by the history's length.
    """
    full = torch.ones(num_queries, num_past + num_queries, dtype=torch.bool, device=device)
    return full.tril(diagonal=num_past)[None, None]


def prefix_mask(valid: Bool[Tensor, "B T"], num_source: int, bidirectional: bool) -> Bool[Tensor, "B 1 T T"]:
    """Which keys each query of a padded causal sequence may attend to: real ones, up to itself.

    Args:
        valid: True at real positions.
        num_source: The first so many positions are the source.
        bidirectional: Positions of the source attend to the whole source (a prefix language model).

    Source:
        Raffel et al. 2020, arXiv:1910.10683, section 3.2.1 (prefix LM).
    """
    length = valid.shape[1]
    allowed = causal_mask(length, device=valid.device)
    if bidirectional:
        in_source = torch.arange(length, device=valid.device) < num_source
        allowed = allowed | (in_source[:, None] & in_source[None, :])
    return allowed & padding_mask(valid)


def document_mask(documents: Int[Tensor, "B T"]) -> Bool[Tensor, "B 1 T T"]:
    """Causal, and only within one document of a packed block.

    Args:
        documents: For each position the number of its document.
    """
    same = documents[:, :, None] == documents[:, None, :]
    return causal_mask(documents.shape[1], device=documents.device) & same[:, None]
