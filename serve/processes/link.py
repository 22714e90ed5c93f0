"""A connection between two processes of the service."""

import contextlib
import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any


class Link:
    """Messages in both directions. `send` never waits: a thread does, and takes what is there in one go.

    What is in flight is bounded by those who send: each job has one message and one answer. encode: makes in
    that thread, of what was given to `send`, what is sent.
    """

    def __init__(
        self,
        connection: "Connection[Any, Any]",
        name: str,
        encode: Callable[[Any], Any] = lambda message: message,
    ) -> None:
        self._encode = encode
        self._connection = connection
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._sender = threading.Thread(target=self._send_all, name=f"{name}-send", daemon=True)
        self._sender.start()

    def send(self, message: Any) -> None:
        """Queues a message, which is lost if the other end is gone."""
        self._outbox.put(message)

    def received(self) -> Iterator[Any]:
        """Messages as they come, until the other end is gone."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                yield from self._connection.recv()

    def flush(self, timeout: float) -> None:
        """Waits until what was sent so far is on its way; nothing is sent after it."""
        self._outbox.put(None)
        self._sender.join(timeout)

    def close(self) -> None:
        """Ends `received` at both ends."""
        self._outbox.put(None)
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as ours:
            ours.shutdown(socket.SHUT_RDWR)  # closing alone would not wake a thread that receives
        with contextlib.suppress(OSError):
            self._connection.close()

    def _send_all(self) -> None:
        with contextlib.suppress(OSError):
            while (message := self._outbox.get()) is not None:
                messages = [message]
                with contextlib.suppress(queue.Empty):
                    while (message := self._outbox.get_nowait()) is not None:
                        messages.append(message)
                self._connection.send([self._encode(sent) for sent in messages])
                if message is None:
                    return
