"""A connection between two processes of the service."""

import asyncio
import contextlib
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

_LENGTH = struct.Struct("<Q")  # before each message
_READ_AHEAD = 1 << 16  # bytes: dozens of messages in one go


class Link:
    """Messages in both directions. `send` never waits: what the socket does not take at once, a thread sends.

    The thread is not asked as a rule, since waking it up takes longer than sending. What is in flight is
    bounded by those who send: each job has one message and one answer. connection: taken over, after what was
    said on it before.
    """

    def __init__(self, connection: "Connection[Any, Any]", name: str) -> None:
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        connection.close()
        self._received = bytearray()
        self._unsent: deque[bytes | memoryview] = deque()
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._send_unsent, name=f"{name}-send", daemon=True).start()

    def send(self, message: bytes) -> None:
        """Sends a message, which is lost if the other end is gone."""
        with self._changed:
            if self._closed:
                return
            pieces: list[bytes | memoryview] = [_LENGTH.pack(len(message)), message]
            if not self._unsent:
                pieces = self._send_at_once(pieces)
            if pieces:
                self._unsent.extend(pieces)
                self._changed.notify_all()

    def fileno(self) -> int:
        """What to wait for until there is something to receive."""
        return self._socket.fileno()

    def received(self) -> list[bytes] | None:
        """The messages that have come since the last call; None once the other end is gone. Does not wait."""
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
        """Calls `take` with each message, in the thread of an event loop, and at last `on_end`. For that
        thread."""

        def read() -> None:
            messages = self.received()
            if messages is None:
                loop.remove_reader(self._socket)
                on_end()
                return
            for message in messages:
                take(message)

        loop.add_reader(self._socket, read)

    def flush(self, timeout: float) -> None:
        """Waits until what was sent so far is on its way."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._unsent, timeout)

    def end(self) -> None:
        """Ends `received` at both ends."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # closing alone would not wake a thread that waits for it

    def close(self) -> None:
        """Ends it, and gives the connection back. Not before `on_end` where an event loop receives."""
        self.end()
        self._socket.close()

    def _send_at_once(self, pieces: list[bytes | memoryview]) -> list[bytes | memoryview]:
        """What the socket has no room for."""
        try:
            sent = self._socket.sendmsg(pieces, (), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return pieces
        except OSError:  # the other end is gone, as `received` finds, too
            return []
        left: list[bytes | memoryview] = []
        for piece in pieces:
            if sent < len(piece):
                left.append(memoryview(piece)[sent:])
            sent = max(0, sent - len(piece))
        return left

    def _send_unsent(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._unsent)
                if self._closed:
                    return
                piece = self._unsent[0]  # there until it is sent: what comes meanwhile goes behind it
            try:
                self._socket.sendall(piece)
            except OSError:
                return
            with self._changed:
                self._unsent.popleft()
                self._changed.notify_all()


def _taken_from(received: bytearray) -> list[bytes]:
    """The whole messages at the beginning, which are taken away."""
    messages, begin = [], 0
    while len(received) >= begin + _LENGTH.size:
        end = begin + _LENGTH.size + _LENGTH.unpack_from(received, begin)[0]
        if len(received) < end:
            break
        messages.append(bytes(memoryview(received)[begin + _LENGTH.size : end]))
        begin = end
    del received[:begin]
    return messages
