"""Shows other processes that the event loop of one still turns, and whether it can take requests."""

import mmap
import os
import time
from multiprocessing.reduction import DupFd
from typing import Any

_COUNT = 8  # bytes
_SIZE = _COUNT + 1
_LONGEST_LOOK = (
    0.5  # seconds that count from one look to the next: the watching process may have slept itself
)


class Pulse:
    """A count that one process moves on and others look at, and whether that process waits for what it needs.

    One of the others makes it, and starts the former with it. Before the first `beat` nothing is expected.
    """

    def __init__(self) -> None:
        file = os.memfd_create("lensbox-pulse")
        os.ftruncate(file, _SIZE)
        self._attach(file)

    def _attach(self, file: int) -> None:
        self._file = file
        self._memory = mmap.mmap(file, _SIZE)
        self._seen = self._silence = 0.0
        self._looked = time.monotonic()

    def __reduce__(self) -> Any:
        return _attached, (DupFd(self._file),)

    def beat(self, is_ready: bool = True) -> None:
        """Says that the process is alive, and whether it can do its work."""
        self._memory[:] = (self._count() + 1).to_bytes(_COUNT, "little") + bytes([not is_ready])

    @property
    def waits(self) -> bool:
        """Whether the last beat was of a process that cannot do its work yet."""
        return bool(self._memory[_COUNT])

    def silence(self) -> float:
        """For how many seconds the count has stood still, as far as this process has looked on."""
        now, count = time.monotonic(), self._count()
        if count == 0 or count != self._seen:
            self._silence = 0.0
        else:
            self._silence += min(now - self._looked, _LONGEST_LOOK)
        self._seen, self._looked = count, now
        return self._silence

    def reset(self) -> None:
        """For another process in the place of one that has ended. It may beat before it is looked at."""
        self._memory[:] = bytes(_SIZE)
        self._seen = self._silence = 0.0

    def _count(self) -> int:
        return int.from_bytes(self._memory[:_COUNT], "little")


def _attached(file: Any) -> Pulse:
    pulse = Pulse.__new__(Pulse)
    pulse._attach(file.detach())
    return pulse
