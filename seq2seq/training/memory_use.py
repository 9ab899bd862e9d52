"""How much memory this process has taken at most, and how much there is for it."""

import ctypes
from contextlib import suppress
from pathlib import Path

import torch

GB = 1e9
_STATUS, _CLEAR, _INFO = Path("/proc/self/status"), Path("/proc/self/clear_refs"), Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def forget_peak(device: torch.device) -> bool:
    """Begin anew with the peak of the memory in use.

    Returns:
        Whether the peak can be measured here: on CUDA, and on Linux.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return True
    try:
        _CLEAR.write_text("5", encoding="ascii")  # sets VmHWM to what is resident now (man 5 proc)
    except OSError:
        return False
    return device.type == "cpu"


def give_back() -> None:
    """Have the C library hand freed memory back to the system, where it is GNU's: it keeps much of it otherwise."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def peak_bytes(device: torch.device) -> int:
    """The most memory that was in use since `forget_peak`: on CUDA of torch's allocator, else resident in RAM."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    return _kilobytes(_STATUS, "VmHWM")


def memory_for_us(device: torch.device) -> int:
    """Bytes that this process could take altogether, what it has included, without anything being swapped out."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free) + torch.cuda.memory_reserved(device)
    available = _kilobytes(_INFO, "MemAvailable")
    limit, used = _of_group("memory.max"), _of_group("memory.current")
    if limit is not None and used is not None:  # a container, or a job of a cluster
        available = min(available, limit - used + (_of_group_file("memory.stat", "inactive_file") or 0))
    return available + _kilobytes(_STATUS, "VmRSS")


def _kilobytes(file: Path, name: str) -> int:
    """A value of a file of /proc, in bytes."""
    for line in file.read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise ValueError(f"{file} has no {name}, by which memory is measured; give data.batch_tokens")


def _of_group(name: str) -> int | None:
    """A limit or figure of the control group that we run in; None where there is none."""
    try:
        text = (_GROUP / name).read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _of_group_file(file: str, name: str) -> int | None:
    """One figure of many in a file of the control group."""
    try:
        lines = (_GROUP / file).read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), None)
