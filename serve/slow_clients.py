"""Connections that give up on clients that take too long. uvicorn itself waits for ever."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

try:  # takes 0.15 ms of CPU time a request less
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    _Protocol: Any = HttpToolsProtocol
except ImportError:
    from uvicorn.protocols.http.h11_impl import H11Protocol

    _Protocol = H11Protocol

_LONGEST_HEAD = 1 << 16  # bytes; httptools has no limit of its own
_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)
_GOODBYE = 2.0  # seconds in which a client may close its side of TLS


class Patience(NamedTuple):
    """Seconds. head: from a request's first byte, or from a connection's beginning, to the end of its head.
    body: for the rest of a body that was answered early. answer: for an answer to be taken."""

    head: float
    body: float
    answer: float


def patient_protocol(patience: Patience, on_given_up: Callable[[str], None]) -> Any:
    """uvicorn's HTTP/1.1 connections with these limits, by httptools where it is installed, else by h11.

    Body and answer of a request in progress are the app's matter. on_given_up: called with the reason,
    "slow_request" or "slow_reader", when a connection is cut.

    What builds on it answers a request itself by setting `skips_body` when its head is complete, and
    `has_skipped` when its body is over.
    """

    class PatientProtocol(_Protocol):  # type: ignore[misc]
        skips_body = has_skipped = False

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._head_bytes = 0
            self._receiving, self._sending = _Timer(self.loop), _Timer(self.loop)
            self._receiving.start(patience.head, self._give_up_request)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.transport.is_closing():
                return
            if not is_idle(self) or self.has_skipped:
                self._receiving.stop()
                self._head_bytes = 0
                self.has_skipped = False
            elif self.skips_body or (self.cycle is not None and self.cycle.more_body):
                self._receiving.start(patience.body, self._give_up_request)
            else:
                self._receiving.start(patience.head, self._give_up_request)
                self._head_bytes += len(data)
                if self._head_bytes > _LONGEST_HEAD:
                    self.transport.write(_HEAD_TOO_LARGE)
                    self._close()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._sending.start(patience.answer, self._give_up_answer)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._sending.stop()
            self._limit_closing()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._limit_closing()

        def shutdown(self) -> None:
            super().shutdown()
            self._limit_closing()

        def timeout_keep_alive_handler(self) -> None:
            self._close()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._receiving.stop()
            self._sending.stop()

        def _close(self) -> None:
            self.transport.close()
            self._limit_closing()

        def _limit_closing(self) -> None:
            """A transport that is to close waits for ever until the last answer is taken, and one of TLS for
            the client's goodbye."""
            if not self.transport.is_closing():
                return
            if self.transport.get_write_buffer_size():
                self._sending.start(patience.answer, self._give_up_answer)
            else:
                self._sending.start(_GOODBYE, self.transport.abort)

        def _give_up_request(self) -> None:
            # Else it was opened in case it is needed, as browsers do.
            if self._head_bytes or self.cycle is not None:
                on_given_up("slow_request")
            self.transport.abort()

        def _give_up_answer(self) -> None:
            on_given_up("slow_reader")
            self.transport.abort()

    return PatientProtocol


def is_idle(connection: Any) -> bool:
    """Whether no request is in progress on a connection of uvicorn."""
    cycle = connection.cycle
    return cycle is None or bool(cycle.response_complete)


class _Timer:
    """One call that is still to come, or none."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    def start(self, seconds: float, call: Callable[[], None]) -> None:
        """Unless time runs already: a byte now and then gains a client nothing."""
        if self._handle is None:
            self._handle = self._loop.call_later(seconds, call)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
