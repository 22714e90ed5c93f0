"""Admission control: check once per request for room, and send answers at the client's pace."""

import asyncio
import logging
import re
import time
from types import SimpleNamespace

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lensbox.serve.engine.errors import NotReadyError, OverloadError
from lensbox.serve.http.errors import response_to
from lensbox.serve.http.service import Service
from lensbox.serve.requests.errors import ApiError
from lensbox.serve.requests.futures import DEADLINE_HEADER, Deadline, deadline_of

_log = logging.getLogger(__name__)

_PIECE = 1 << 16  # bytes of an answer that are sent at a time
# For metrics and logs of requests that are refused before a route is looked up.
_ROUTES = [
    (re.compile(path.replace("{name}", "[^/]+").replace("{version}", "[^/]+")), path)
    for path in (
        "/v1/detect",
        "/v1/loss",
        "/v2/models/{name}/infer",
        "/v2/models/{name}/versions/{version}/infer",
    )
]


class Admission:
    """Shed load: admit or refuse each POST once, before its body is read.

    A request is in progress until the network has taken its answer. Large answers are sent piece by piece, so
    that a slow reader occupies a place in `max_requests` instead of memory. The connection of a client that
    does not read its answer within `send_timeout` is closed.
    """

    def __init__(self, app: ASGIApp, state: FastAPI) -> None:
        self._app = app
        self._state = state.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        service: Service = self._state.service
        answer = _Answer(send, service.settings.send_timeout)
        try:
            texts = header_values(scope, DEADLINE_HEADER.lower().encode())
            deadline = deadline_of(texts[0].decode("latin-1") if texts else None)
            scope["lensbox.deadline"] = deadline
            _check_room(service, deadline)
            service.begin_request()
            try:
                await self._app(scope, receive, answer.send)
            finally:
                service.in_progress -= 1
        except (ApiError, NotReadyError, OverloadError) as error:
            scope["route"] = _route(scope["path"])
            await response_to(error, scope["path"])(scope, receive, send)
        except asyncio.CancelledError:  # uvicorn cancels the request at shutdown
            if answer.begun:
                raise
            late = NotReadyError("the service is shutting down")
            await response_to(late, scope["path"])(scope, receive, send)
        except SlowReaderError as error:
            # The server closes a connection whose answer is incomplete.
            _log.warning("%s", error)


def _check_room(service: Service, deadline: Deadline) -> None:
    """Raise NotReadyError if the model is not ready.

    Raise OverloadError at `max_requests`, or if the engine has no room or cannot meet the deadline.
    """
    service.engine.ready_artifact()
    if service.in_progress >= service.settings.max_requests:
        raise OverloadError(f"{service.in_progress} requests are already in progress; try again later")
    service.engine.check_room(deadline.at, service.in_progress)


class SlowReaderError(Exception):
    """A client did not read its answer in time."""


class _Answer:
    """Send an answer piece by piece. Each piece waits until the network has taken the previous pieces."""

    def __init__(self, send: Send, timeout: float) -> None:
        self.begun = False
        self._send = send
        self._timeout = timeout
        self._until = 0.0

    async def send(self, message: Message) -> None:
        """Send an ASGI message. Raises SlowReaderError `timeout` seconds after the answer began."""
        if not self.begun:
            self.begun = True
            self._until = time.monotonic() + self._timeout
        body = message.get("body", b"")
        if len(body) <= _PIECE:
            await self._send(message)
            return
        for begin in range(0, len(body), _PIECE):
            end = begin + _PIECE
            more = end < len(body) or message.get("more_body", False)
            piece = {"type": "http.response.body", "body": bytes(body[begin:end]), "more_body": more}
            try:
                await asyncio.wait_for(self._send(piece), max(0.0, self._until - time.monotonic()))
            except (TimeoutError, asyncio.TimeoutError):  # one class since Python 3.11
                reason = f"closed the connection of a client that read no answer for {self._timeout:g} s"
                raise SlowReaderError(reason) from None


def _route(path: str) -> SimpleNamespace:
    found = next((route for pattern, route in _ROUTES if pattern.fullmatch(path)), "none")
    return SimpleNamespace(path=found)


def header_values(scope: Scope, wanted: bytes) -> list[bytes]:
    """Return all values of a header. wanted: its name in lower case."""
    return [value for name, value in scope["headers"] if name == wanted]
