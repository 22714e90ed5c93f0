"""Heartbeats: counters in shared memory, which show whether the event loop of another process still runs."""

import mmap
import os
import time
from collections.abc import Sequence
from multiprocessing.reduction import DupFd
from typing import Any

from lensbox.serve.errors import NotReadyError

_COUNT = 8  # bytes
_SIZE = _COUNT + 1
_LONGEST_STEP = 0.5  # seconds of silence counted per check at most: this process may have been suspended


class Heartbeat:
    """A counter that one process increments and other processes watch, with a flag for readiness.

    A watching process makes the heartbeat and passes it to the watched process. Silence counts from the first
    `beat`.
    """

    def __init__(self) -> None:
        file = os.memfd_create("lensbox-heartbeat")
        os.ftruncate(file, _SIZE)
        self._attach(file)

    def _attach(self, file: int) -> None:
        self._file = file
        self._memory = mmap.mmap(file, _SIZE)
        self._last_count = 0
        self._silence = 0.0
        self._checked = time.monotonic()

    def __reduce__(self) -> Any:
        return _attached, (DupFd(self._file),)

    def beat(self, is_ready: bool = True) -> None:
        """Record that this process is alive, and whether it is ready."""
        self._memory[:] = (self.count + 1).to_bytes(_COUNT, "little") + bytes([not is_ready])

    @property
    def count(self) -> int:
        """Number of beats since the start or the last reset."""
        return int.from_bytes(self._memory[:_COUNT], "little")

    @property
    def waits(self) -> bool:
        """True if the watched process was not ready at its last beat."""
        return bool(self._memory[_COUNT])

    def silence(self) -> float:
        """Return the seconds since the last observed beat; 0 before the first."""
        now, count = time.monotonic(), self.count
        if count and count == self._last_count:
            self._silence += min(now - self._checked, _LONGEST_STEP)
        else:
            self._silence = 0.0
        self._last_count, self._checked = count, now
        return self._silence

    def close(self) -> None:
        """Free the memory. Other processes keep theirs."""
        self._memory.close()
        os.close(self._file)

    def reset(self) -> None:
        """Start over, for a process that replaces one that has ended."""
        self._memory[:] = bytes(_SIZE)
        self._last_count = 0
        self._silence = 0.0


class Peers:
    """The front ends of one service. They share a listening socket: a client may reach any of them.

    heartbeats: one per front end. number: index of this process.
    """

    def __init__(self, heartbeats: Sequence[Heartbeat], number: int) -> None:
        self._own = heartbeats[number]
        self._others = [heartbeat for index, heartbeat in enumerate(heartbeats) if index != number]

    def beat(self, is_ready: bool) -> None:
        """Record that this front end is alive, and whether it is ready. Call it ten times a second."""
        self._own.beat(is_ready)

    def check_ready(self) -> None:
        """Raise NotReadyError while another front end accepts requests and is not ready."""
        if any(heartbeat.waits for heartbeat in self._others):
            raise NotReadyError("another front end cannot take images yet")


def _attached(file: Any) -> Heartbeat:
    heartbeat = Heartbeat.__new__(Heartbeat)
    heartbeat._attach(file.detach())
    return heartbeat
