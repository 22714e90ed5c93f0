"""Between two processes of the service: messages, shared memory, and busy-polling instead of sleep."""

import asyncio
import contextlib
import mmap
import os
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

_LENGTH = struct.Struct("<Q")  # before each message
_READ_AHEAD = 1 << 16  # bytes: dozens of messages in one go
_ALIGNMENT = 64


class Link:
    """Send and receive messages. `send` does not block: if the socket is full, a thread sends the rest.

    Usually the whole message fits; waking the thread would take longer than sending. The number of messages
    in flight is bounded: each job has one request and one reply. connection: an authenticated connection,
    which the link takes over.
    """

    def __init__(self, connection: "Connection[Any, Any]", name: str) -> None:
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        connection.close()
        self._received = bytearray()
        self._unsent: deque[memoryview] = deque()
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._send_unsent, name=f"{name}-send", daemon=True).start()

    def send(self, message: bytes) -> None:
        """Send a message. Drop the message if the other end is gone."""
        with self._changed:
            if self._closed:
                return
            rest = memoryview(_LENGTH.pack(len(message)) + message)
            if not self._unsent:
                try:
                    rest = rest[self._socket.send(rest, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    pass
                except OSError:  # the other end is gone; `received` reports it
                    return
            if rest:
                self._unsent.append(rest)
                self._changed.notify_all()

    def fileno(self) -> int:
        """Return the file descriptor, which becomes readable when a message arrives."""
        return self._socket.fileno()

    def received(self) -> list[bytes] | None:
        """Return the messages that have arrived; None if the other end is gone. Does not block."""
        try:
            piece = self._socket.recv(_READ_AHEAD, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not piece:
            return None
        self._received += piece
        return _taken_from(self._received)

    def receive_in(
        self, loop: asyncio.AbstractEventLoop, take: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> None:
        """Call `take` with each message, and finally `on_end`, in this thread's event loop."""

        def read() -> None:
            messages = self.received()
            if messages is None:
                loop.remove_reader(self._socket)
                on_end()
                return
            for message in messages:
                take(message)

        loop.add_reader(self._socket, read)

    def end(self) -> None:
        """End the connection: `received` returns None at both ends."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # close() would not wake a waiting thread

    def close(self) -> None:
        """End the connection and close its file. With `receive_in`, call it after `on_end`."""
        self.end()
        self._socket.close()

    def _send_unsent(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._unsent)
                if self._closed:
                    return
                piece = self._unsent[0]  # removed after it is sent, so that later messages queue behind it
            try:
                self._socket.sendall(piece)
            except OSError:
                return
            with self._changed:
                self._unsent.popleft()


def _taken_from(received: bytearray) -> list[bytes]:
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


class BusyWait:
    """Decide whether to busy-poll: only if the last wait was shorter than `limit` seconds; 0: never.

    Waking a sleeping thread costs 40 to 170 us on virtual machines and leaves the CPU at a lower clock. With
    an H200, decoding a photograph took 1.7 to 1.9 ms after 2 ms of sleep instead of 1.5 ms, and the rest of
    the request 1.2 ms instead of 0.9 ms.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._begun = 0.0
        self._pays = False

    def begin(self) -> None:
        """Record the start of a wait."""
        self._begun = time.monotonic()

    @property
    def goes_on(self) -> bool:
        """True to poll again instead of sleeping."""
        return self._pays and self._is_short

    def end(self) -> None:
        """Record the end of a wait."""
        self._pays = self._is_short

    def poll(self, poll: Callable[[float], list[Any]], timeout: float) -> list[Any]:
        """Call `poll` with a timeout of 0 while busy-polling pays, then with `timeout`. Return its events."""
        events = poll(0)
        if events or timeout <= 0:
            return events
        if timeout < self._limit:  # a wait for more jobs of a batch
            return poll(timeout)
        self.begin()
        while self.goes_on and not events:
            events = poll(0)
        events = events or poll(timeout)
        self.end()
        return events

    @property
    def _is_short(self) -> bool:
        return time.monotonic() - self._begun < self._limit


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
        nbytes = -(-max(nbytes, 1) // _ALIGNMENT) * _ALIGNMENT
        with self._lock:
            for index, (begin, end) in enumerate(self._free):
                if end - begin >= nbytes:
                    self._taken[begin] = begin + nbytes
                    self._free[index : index + 1] = [(begin + nbytes, end)] if end > begin + nbytes else []
                    return begin
        return None

    def free(self, *offsets: int) -> None:
        """Free the blocks at these offsets. Raise KeyError if no block begins there."""
        with self._lock:
            gaps = sorted([*self._free, *((offset, self._taken.pop(offset)) for offset in offsets)])
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
