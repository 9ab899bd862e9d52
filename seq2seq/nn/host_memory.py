"""What the process does with memory of tensors that are freed."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Names of the settings in glibc's malloc.h."""
_KEPT = 2**30
"""Bytes: blocks below this size are kept when they are freed."""


def keep_freed_memory(*, threads: bool = False) -> bool:
    """Have freed memory kept for the tensors of the next step instead of given back to the system.

    The activations of a step are tens of megabytes each. By default the C library takes such blocks from the system one
    by one and returns them as soon as they are freed, and the system clears every page anew at the next step: a tenth
    of the time of training on a CPU, and a twentieth of that of translating. The peak of the memory stays about the
    same; it is only not given back in between.

    Args:
        threads: Whether threads that come and go have their tensors from there too, not from memory of their own: that
            has pieces of 64 MiB, and larger tensors come from the system each time. Only for threads that have not
            begun to allocate.

    Returns:
        Whether the C library has these settings: glibc does, on Linux. Elsewhere nothing changes.
    """
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return False
    settings = {_MMAP_THRESHOLD: _KEPT, _TRIM_THRESHOLD: _KEPT} | ({_ARENA_MAX: 1} if threads else {})
    done = [library.mallopt(name, value) for name, value in settings.items()]
    return done == [1] * len(settings)
