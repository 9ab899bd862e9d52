"""What Lightning says at every start is left out; its warnings about the run itself stay."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from seq2seq.training.distribution import rank


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Leave out what Lightning says at every start; its warnings about the run itself stay."""
    logger = logging.getLogger("pytorch_lightning")
    level = logger.level
    logger.setLevel(logging.WARNING)
    with warnings.catch_warnings():
        for message in (
            ".*LeafSpec.*",  # its own use of torch
            "Checkpoint directory .* exists and is not empty",  # as after a resume
            "You're resuming from a checkpoint that ended before the epoch ended",  # EpochDataModule sees to it
            ".*does not have many workers",  # batches are made in microseconds
            "The number of training batches .* is smaller than the logging interval",  # steps go on over epochs
        ):
            warnings.filterwarnings("ignore", message=message)
        try:
            yield
        finally:
            logger.setLevel(level)


@contextmanager
def told_by_rank_zero() -> Iterator[None]:
    """Where all ranks do the same, one of them says it: warnings of the others are left out."""
    logger = logging.getLogger("seq2seq")
    level = logger.level
    if rank() > 0:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
