"""Whether torch can compile on this machine; what is compiled are the blocks of a stack (`seq2seq.models.stack`)."""

import logging
import time

import torch

log = logging.getLogger(__name__)


def check_compiler(device: str) -> None:
    """Compile and run a line of arithmetic, so that what is missing is missed before the training.

    Torch writes C++ for CPUs and Triton for GPUs. What this compiles is kept by torch on disk, and takes seconds at the
    first time on a machine.

    Args:
        device: Kind of device, in torch's name.

    Raises:
        ValueError: if that fails, with what torch says of it.
    """
    started = time.perf_counter()
    try:
        _compile_a_line(device)
    except Exception as problem:  # torch raises many kinds: no compiler, no headers, no Triton
        said = str(problem).partition("\n")[0]
        wanted = "a C++ compiler (g++, or the one that CXX names)" if device == "cpu" else "Triton and a C compiler"
        raise ValueError(
            f"trainer.compile=true, but torch {torch.__version__} cannot compile for {device} here: {said:.300}; it "
            f"needs {wanted}; install that, or choose trainer.compile=false"
        ) from problem
    log.info("torch can compile for %s (tried in %.0f s)", device, time.perf_counter() - started)


def _compile_a_line(device: str) -> None:
    x = torch.linspace(-1, 1, 24, device=device)
    found = torch.compile(lambda x: (3 * x + 1).relu().sum(), dynamic=True)(x)
    if not torch.isclose(found, (3 * x + 1).relu().sum()):
        raise ValueError(f"compiled code is wrong: {float(found)}")
