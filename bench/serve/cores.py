"""Which cores the service may use, and which are kept for those who send."""

import contextlib
import os
from collections.abc import Iterator

_LEAST = 8  # cores, for some of them to be kept
_SHARE = 4  # one of so many


def load_cores() -> list[int]:
    """The last quarter of this process's cores where it has 8 or more; none where all are shared."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0))
    return cores[-(len(cores) // _SHARE) :] if len(cores) >= _LEAST else []


@contextlib.contextmanager
def without(cores: list[int]) -> Iterator[None]:
    """This process, and what it starts, on the others."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before - set(cores))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
