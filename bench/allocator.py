"""Keeps page faults out of CPU figures."""

import ctypes
import sys

# Parameters of mallopt in glibc's malloc.h, and the largest threshold that it takes.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST_MMAP_THRESHOLD = 32 << 20
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Lets this process keep the memory that it frees, and says whether the C library could be told so.

    Otherwise large temporaries may be handed back to the system after each call, and their pages be faulted
    in again by the next. Whether that happens depends on what lies above them in memory: times of a peer with
    many temporaries came out three times as long in one case as in another.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it, other C libraries need not
    if mallopt is None:
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _NEVER)) and bool(
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    )
