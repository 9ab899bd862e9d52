"""Results over many positions whose logits exist for a few of them at a time."""

from collections.abc import Callable
from typing import TypeVar

from torch import split
from torch.utils.checkpoint import checkpoint

from seq2seq.shapes import Tensor

T = TypeVar("T")


def in_chunks(function: Callable[..., T], chunk: int | None, *rows: Tensor) -> list[T]:
    """What a function gives for each chunk of the rows.

    Nothing of what it computes on the way is kept for the gradient: it is computed again when that is taken.

    Args:
        function: Takes as many tensors as there are here, with equally many rows, and draws no random numbers.
        chunk: Rows given to it at a time; None gives all of them at once, and keeps what is computed on the way.
        rows: Tensors with equally many rows, perhaps none.
    """
    if chunk is None:
        return [function(*rows)]
    parts = zip(*(split(tensor, chunk) for tensor in rows), strict=True)
    return [checkpoint(function, *part, use_reentrant=False, preserve_rng_state=False) for part in parts]
