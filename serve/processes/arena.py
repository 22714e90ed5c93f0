"""Memory that a front end shares with engines: it writes images into it, and they read them there."""

import mmap
import os
import threading

_ALIGNMENT = 64


class Arena:
    """Blocks of one shared memory, each at the lowest place where it fits: little of it is ever touched.

    It is memory without a name (memfd): it ends with the last process that uses it, however that ends, and
    /dev/shm, which is small in containers, does not bound it. Methods may be called from any thread.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.file = os.memfd_create("lensbox")
        os.ftruncate(self.file, size)
        self._memory = mmap.mmap(self.file, size)
        self._free = [(0, size)]  # begin and end of each gap, in their order
        self._taken: dict[int, int] = {}  # the end of each block by its begin
        self._lock = threading.Lock()

    def allocate(self, nbytes: int) -> int | None:
        """The offset of a new block, a multiple of 64; None where none is left for it."""
        nbytes = aligned(max(nbytes, 1))
        with self._lock:
            for index, (begin, end) in enumerate(self._free):
                if end - begin >= nbytes:
                    self._taken[begin] = begin + nbytes
                    self._free[index : index + 1] = [(begin + nbytes, end)] if end > begin + nbytes else []
                    return begin
        return None

    def free(self, offset: int) -> None:
        """Gives a block back. Raises KeyError if there is none at that offset."""
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
        """Whether no block is in use."""
        return not self._taken

    def write(self, offset: int, content: memoryview) -> None:
        """Copies bytes to an offset."""
        self._memory[offset : offset + content.nbytes] = content


def aligned(nbytes: int) -> int:
    """The next multiple of 64 bytes."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
