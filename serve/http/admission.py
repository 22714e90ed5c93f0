"""Admission control: check once per request for room."""

import asyncio
import re
from types import SimpleNamespace

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lensbox.serve.errors import ApiError, NotReadyError, OverloadError
from lensbox.serve.http.errors import RETRY_AFTER, response_to
from lensbox.serve.http.service import Service
from lensbox.serve.requests.futures import DEADLINE_HEADER, Deadline, deadline_of

# For metrics and logs; Starlette's routes and refused requests have no route in the scope.
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
    """Shed load: admit or refuse each POST once, before its body is read."""

    def __init__(self, app: ASGIApp, state: FastAPI) -> None:
        self._app = app
        self._state = state.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        service: Service = self._state.service
        begun = False

        async def note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        scope["route"] = _route(scope["path"])
        try:
            texts = header_values(scope, DEADLINE_HEADER.lower().encode())
            deadline = deadline_of(texts[0].decode("latin-1") if texts else None)
            scope["lensbox.deadline"] = deadline
            _check_room(service, deadline)
            service.begin_request()
            try:
                await self._app(scope, receive, note)
            finally:
                service.in_progress -= 1
        except (ApiError, NotReadyError, OverloadError) as error:
            await response_to(error, scope["path"])(scope, receive, send)
        except asyncio.CancelledError:  # uvicorn cancels the request at shutdown
            if begun:
                raise
            late = NotReadyError("the service is shutting down")
            await response_to(late, scope["path"])(scope, receive, send)


def _check_room(service: Service, deadline: Deadline) -> None:
    """Raise NotReadyError if the model is not ready, and ApiError (503) above `max_connections`.

    Raise OverloadError at `max_requests`, or if the engine has no room or cannot meet the deadline.
    """
    service.engine.ready_artifact()
    if service.connections.open > service.settings.max_connections:
        message = f"{service.connections.open} connections are open; try again later"
        raise ApiError(503, "overloaded", message, {**RETRY_AFTER, "Connection": "close"})
    if service.in_progress >= service.settings.max_requests:
        raise OverloadError(f"{service.in_progress} requests are already in progress; try again later")
    service.engine.check_room(deadline.at, service.in_progress)


def _route(path: str) -> SimpleNamespace:
    found = next((route for pattern, route in _ROUTES if pattern.fullmatch(path)), "none")
    return SimpleNamespace(path=found)


def header_values(scope: Scope, wanted: bytes) -> list[bytes]:
    """Return all values of a header. wanted: its name in lower case."""
    return [value for name, value in scope["headers"] if name == wanted]
