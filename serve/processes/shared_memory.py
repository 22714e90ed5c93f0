"""Shared memory: the tensors of jobs that front ends send to engines, and the heartbeats of processes."""

import mmap
import os
import threading
import time
from collections.abc import Sequence
from multiprocessing.reduction import DupFd
from typing import Any

from lensbox.serve.errors import NotReadyError

_ALIGNMENT = 64
_COUNT = 8  # bytes
_SIZE = _COUNT + 1
_LONGEST_STEP = 0.5  # seconds of silence counted per check at most: this process may have been suspended


class Arena:
    """An allocator in a shared memory file: a front end writes images, engines read them. First fit.

    The file has no name (memfd): it ends with the last process that uses it, and the size of /dev/shm (small
    in containers) does not limit it. Thread-safe.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.file = os.memfd_create("lensbox")
        os.ftruncate(self.file, size)
        self._memory = mmap.mmap(self.file, size)
        self._free = [(0, size)]  # begin and end of each gap, in order
        self._taken: dict[int, int] = {}  # end of each block by its begin
        self._lock = threading.Lock()

    def allocate(self, nbytes: int) -> int | None:
        """Return the offset of a new block, a multiple of 64; None if there is no room."""
        nbytes = aligned(max(nbytes, 1))
        with self._lock:
            for index, (begin, end) in enumerate(self._free):
                if end - begin >= nbytes:
                    self._taken[begin] = begin + nbytes
                    self._free[index : index + 1] = [(begin + nbytes, end)] if end > begin + nbytes else []
                    return begin
        return None

    def free(self, offset: int) -> None:
        """Free the block at an offset. Raise KeyError if no block begins there."""
        with self._lock:
            gaps = sorted([*self._free, (offset, self._taken.pop(offset))])
            self._free = gaps[:1]
            for begin, end in gaps[1:]:
                if begin == self._free[-1][1]:
                    self._free[-1] = (self._free[-1][0], end)
                else:
                    self._free.append((begin, end))

    @property
    def is_empty(self) -> bool:
        """True if no block is in use."""
        return not self._taken

    def write(self, offset: int, content: memoryview) -> None:
        """Copy bytes to an offset."""
        self._memory[offset : offset + content.nbytes] = content


def aligned(nbytes: int) -> int:
    """Round up to a multiple of 64."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


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
