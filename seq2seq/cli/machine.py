"""What every command that computes does about the machine it runs on."""

from seq2seq.cli import UsageError
from seq2seq.config import MAX_THREADS


def use_threads(threads: int | None) -> None:
    """Let torch compute with so many CPU threads; None leaves that to torch.

    Raises:
        UsageError: for a number that no machine has.
    """
    if threads is None:
        return
    if threads < 1:
        raise UsageError(f"--threads {threads} is not positive; give at least 1")
    if threads > MAX_THREADS:
        raise UsageError(f"--threads {threads} is more than {MAX_THREADS}; give at most the number of CPU cores")

    import torch

    torch.set_num_threads(threads)
