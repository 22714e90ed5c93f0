"""Memory that is freed is kept for the next call."""

import ctypes
import os
import sys

# Parameters of mallopt in glibc's malloc.h, and the largest threshold that it takes.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST_MMAP_THRESHOLD = 32 << 20
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Lets this process keep the memory that it frees, and says whether it does.

    Otherwise large blocks may be handed back to the system after each call, and their pages be faulted in and
    zeroed again by the next: a batch of 8 in TorchScript takes half as long again on a CPU. Whether that
    happens depends on what lies above them in memory. It does nothing where the C library is not glibc, or
    GLIBC_TUNABLES says what that is to do.
    """
    if not sys.platform.startswith("linux") or "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it, other C libraries need not
    if mallopt is None:
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _NEVER)) and bool(
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    )
