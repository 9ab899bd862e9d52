"""Where all generators of random numbers stand, as plain builtins and tensors, and how to go on from there.

Not among them: the workers of loaders, which draw nothing (subword sampling is keyed by seed, epoch and pair), and the
loaders themselves, each of which has a generator of its own.
"""

import hashlib
import logging
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

log = logging.getLogger(__name__)


def random_state() -> dict[str, Any]:
    """The states of Python's, NumPy's and torch's generators in this process: CPU, CUDA devices in use, and MPS."""
    version, words, gauss = random.getstate()
    name, keys, place, has_gauss, cached = np.random.get_state(legacy=True)
    state: dict[str, Any] = {
        "python": [version, torch.tensor(words, dtype=torch.int64), gauss],
        "numpy": [str(name), torch.from_numpy(np.asarray(keys, dtype=np.int64)), int(place), int(has_gauss), cached],
        "torch": torch.get_rng_state(),
    }
    # where CUDA is not in use, no number was drawn, and asking would take memory there
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        state["mps"] = torch.mps.get_rng_state()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    """Go on from where `random_state` found the generators; what it did not find stays as it is."""
    if "python" in state:
        version, words, gauss = state["python"]
        random.setstate((version, tuple(words.tolist()), gauss))
    if "numpy" in state:
        name, keys, place, has_gauss, cached = state["numpy"]
        np.random.set_state((name, keys.cpu().numpy().astype(np.uint32), place, has_gauss, cached))
    torch.set_rng_state(state["torch"].cpu())
    if "cuda" in state and torch.cuda.is_available():
        for device, of_device in zip(range(torch.cuda.device_count()), state["cuda"], strict=False):
            torch.cuda.set_rng_state(of_device.cpu(), device)
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"].cpu())


def restore_of_rank(states: Sequence[dict[str, Any]], rank: int, num_ranks: int) -> bool:
    """Go on from the state of a rank of the run that is resumed.

    With another number of ranks there is no such state: each gets a seed of its own, made of the first rank's state,
    and a warning says that the run is not the one that was interrupted, bit for bit.

    Args:
        states: What each rank of that run had.
        rank: The number of this one.
        num_ranks: How many there are now.

    Returns:
        Whether the random numbers are those that would have come next.
    """
    if len(states) == num_ranks:
        restore_random_state(states[rank])
        return True
    content = bytes(states[0]["torch"].cpu().tolist()) + rank.to_bytes(4, "big")
    seed = int.from_bytes(hashlib.sha256(content).digest()[:4], "big")
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if rank == 0:
        log.warning(
            "the checkpoint is of %d processes and this run has %d, so dropout draws other numbers from here on: the "
            "weights will not be those of a run that was never interrupted, bit for bit; for that, resume with %d",
            len(states),
            num_ranks,
            len(states),
        )
    return False
