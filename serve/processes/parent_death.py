"""Ends a process with its parent, however that ends: the kernel does it, so no thread of it has to run."""

import ctypes
import signal

_PR_SET_PDEATHSIG = 1  # of Linux' prctl


def end_with_parent() -> None:
    """SIGKILL for this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
