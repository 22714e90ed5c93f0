"""Connections that give up on clients that take too long. uvicorn itself waits for ever."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

_LONGEST_HEAD = 1 << 16  # bytes; httptools has no limit of its own
_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)
_DROPPED: deque[tuple[bytes, bytes]] = deque(maxlen=0)
_GOODBYE = 2.0  # seconds in which a client may close its side of TLS


class Patience(NamedTuple):
    """Seconds. head: from a request's first byte, or from a connection's beginning, to the end of its head.
    body: for the rest of a body that was answered early. answer: for an answer to be taken."""

    head: float
    body: float
    answer: float


def patient_protocol(protocol: Any, patience: Patience, on_given_up: Callable[[str], None]) -> Any:
    """`protocol`, uvicorn's HTTP/1.1 connections by httptools, with these limits.

    Body and answer of a request in progress are the app's matter. on_given_up: called with the reason,
    "slow_request" or "slow_reader", when a connection is cut.
    """

    class PatientProtocol(protocol):  # type: ignore[misc]
        timeout_keep_alive_task: asyncio.TimerHandle | None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._in_body = False
            self._head_bytes = 0  # received of a head, or between two pieces of a body
            self._receiving, self._sending = _Timer(self.loop), _Timer(self.loop)
            self._receiving.start(patience.head, self._give_up_request)

        def data_received(self, data: bytes) -> None:
            self._head_bytes += len(data)  # from 0 again where a head, a piece or a message ends in it
            super().data_received(data)
            if self.transport.is_closing():
                self._limit_closing()
            elif self._head_bytes > _LONGEST_HEAD:
                if is_idle(self) and not self._in_body:  # else it would be taken for another answer
                    self.transport.write(_HEAD_TOO_LARGE)
                self._close()
            elif not is_idle(self):
                self._receiving.stop()
            elif self._in_body:
                self._receiving.start(patience.body, self._give_up_request)
            elif self._head_bytes:
                self._receiving.start(patience.head, self._give_up_request)

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            self.headers = _DROPPED  # trailers, which are none; the next request begins its own
            self._begin(in_body=True)

        def on_body(self, body: bytes) -> None:
            super().on_body(body)
            self._head_bytes = 0

        def on_message_complete(self) -> None:
            super().on_message_complete()
            self._begin(in_body=False)
            if self.timeout_keep_alive_task is None and is_idle(self) and not self.transport.is_closing():
                # It was answered early, and uvicorn's time ended when more of the body came.
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )

        def _begin(self, in_body: bool) -> None:
            self._in_body = in_body
            self._head_bytes = 0
            self._receiving.stop()

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
            if self._head_bytes or self._in_body:
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
