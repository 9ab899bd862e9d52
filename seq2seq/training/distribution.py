"""What the processes of a run tell one another; with one process, everything here is about that one alone."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from pytorch_lightning import LightningModule
from torch import distributed

T = TypeVar("T")

_alone = False


@contextmanager
def alone() -> Iterator[None]:
    """What is done inside, each rank does for itself, as if it were the only one: nothing is sent or waited for."""
    global _alone
    before, _alone = _alone, True
    try:
        yield
    finally:
        _alone = before


def num_ranks() -> int:
    """How many processes train the model together."""
    return distributed.get_world_size() if _is_distributed() else 1


def rank() -> int:
    """The number of this one, counted from 0."""
    return distributed.get_rank() if _is_distributed() else 0


def sum_over_ranks(values: Sequence[float | int]) -> list[float]:
    """Each value added up over all ranks, in float64 where the device has it. Every rank must call it."""
    if not _is_distributed():
        return [float(value) for value in values]
    total = torch.tensor(list(values), dtype=torch.float64, device=_device())
    distributed.all_reduce(total)
    added: list[float] = total.tolist()
    return added


def any_over_ranks(here: bool) -> bool:
    """Whether it is so on any rank. Every rank must call it."""
    return sum_over_ranks([here])[0] > 0


def gather_over_ranks(value: T) -> list[T]:
    """The values of all ranks, in their order; plain builtins and tensors. Every rank must call it."""
    if not _is_distributed():
        return [value]
    values: list[Any] = [None] * num_ranks()
    distributed.all_gather_object(values, value)
    return values


def from_rank_zero(value: T) -> T:
    """Rank 0's value, on all ranks; plain builtins and tensors. Every rank must call it."""
    if not _is_distributed():
        return value
    values: list[Any] = [value]
    distributed.broadcast_object_list(values)
    sent: T = values[0]
    return sent


def barrier() -> None:
    """Wait until all ranks are here. Every rank must call it."""
    sum_over_ranks([0])


def log_the_same(module: LightningModule, metrics: Mapping[str, float]) -> None:
    """Log values that all ranks have in common.

    Lightning warns of values that it is not told to bring together. The greatest of equal values is that value,
    exactly, where their mean may have been rounded.
    """
    module.log_dict(metrics, batch_size=1, sync_dist=num_ranks() > 1, reduce_fx="max")


def _is_distributed() -> bool:
    return not _alone and distributed.is_available() and distributed.is_initialized()


def _device() -> torch.device:
    """Where tensors must lie to be sent."""
    backend = distributed.get_backend()
    return torch.device("cpu") if "gloo" in backend else torch.device("cuda", torch.cuda.current_device())
