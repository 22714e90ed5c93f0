"""Shared memory of a front end and its engines, and the framing of their messages."""

import mmap
import os
import struct

_LENGTH = struct.Struct("<Q")  # before each message
_ALIGNMENT = 64


class Arena:
    """An allocator in a shared memory file: a front end writes images, engines read them. First fit.

    The file has no name (memfd): it ends with the last process that uses it, and the size of /dev/shm (small
    in containers) does not limit it. One thread allocates and frees.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.file = os.memfd_create("lensbox")
        os.ftruncate(self.file, size)
        self._memory = mmap.mmap(self.file, size)
        self._taken: dict[int, int] = {}  # end of each block by its begin

    def allocate(self, nbytes: int) -> int | None:
        """Return the offset of a new block, a multiple of 64; None if there is no room."""
        nbytes = -(-max(nbytes, 1) // _ALIGNMENT) * _ALIGNMENT
        begin = 0
        for taken, end in sorted(self._taken.items()):  # a block for each request at most, and some for tiles
            if taken - begin >= nbytes:
                break
            begin = end
        if begin + nbytes > self.size:
            return None
        self._taken[begin] = begin + nbytes
        return begin

    def free(self, *offsets: int) -> None:
        """Free the blocks at these offsets. Raise KeyError if no block begins there."""
        for offset in offsets:
            del self._taken[offset]

    @property
    def is_empty(self) -> bool:
        """True if no block is in use."""
        return not self._taken

    def write(self, offset: int, content: memoryview) -> None:
        """Copy bytes to an offset. Any thread may call it."""
        self._memory[offset : offset + content.nbytes] = content


def framed(message: bytes) -> bytes:
    """Return a message with its length."""
    return _LENGTH.pack(len(message)) + message


def unframed(received: bytearray) -> list[bytes]:
    """Remove and return the complete messages at the beginning."""
    messages, begin = [], 0
    while len(received) >= begin + _LENGTH.size:
        end = begin + _LENGTH.size + _LENGTH.unpack_from(received, begin)[0]
        if len(received) < end:
            break
        messages.append(bytes(memoryview(received)[begin + _LENGTH.size : end]))
        begin = end
    del received[:begin]
    return messages
