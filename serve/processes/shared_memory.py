"""Shared memory, in which the tensors of jobs pass from front ends to engines."""

import mmap
import os
import threading

_ALIGNMENT = 64


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
