"""Where a model computes, and the mode it computes in."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


def find_device(name: str | torch.device) -> torch.device:
    """The device of that name; "auto" is a GPU when there is one.

    Raises:
        ValueError: if the name means nothing, or this machine has no such device.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device={name} is not known; expected auto, cpu, cuda, cuda:1 or mps") from None
    if device.type not in ("cpu", "cuda", "mps"):  # torch knows more words, such as meta, that compute nothing here
        raise ValueError(f"device={name} is not known; expected auto, cpu, cuda, cuda:1 or mps")
    found = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if (device.index or 0) >= found[device.type]:
        raise ValueError(
            f"device={name} is not there: torch {torch.__version__} finds {found[device.type]} {device.type} devices; "
            "choose auto or cpu"
        )
    return device


def threads_wanted() -> int | None:
    """CPU threads that the environment asks for, as OpenMP reads it: the first one of a list; None if it does not.

    Raises:
        ValueError: if OMP_NUM_THREADS is not a list of numbers above 0.
    """
    listed = os.environ.get("OMP_NUM_THREADS", "").strip()
    if not listed:
        return None
    words = [word.strip() for word in listed.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise ValueError(f"OMP_NUM_THREADS={listed} is not a number of threads; expected such as 4, or 4,2")
    return int(words[0])


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """No dropout, no gradients and no autocast inside; the model's mode is restored after.

    Without autocast a model in mixed-precision training gives the same answers as later, loaded from its bundle. It is
    `no_grad` and not `inference_mode` because modules keep tables that they compute on the way, which training must be
    able to use.
    """
    training = model.training
    if training:
        model.eval()
    try:
        with torch.no_grad(), torch.autocast(next(model.parameters()).device.type, enabled=False):
            yield
    finally:
        if training:
            model.train()
