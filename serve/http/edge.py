"""The middleware around all paths: error answers, and the headers of every answer.

Errors are problem documents (RFC 9457), or {"error": message} under /v2.
"""

import asyncio
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import NoReturn

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lensbox.serve.errors import ApiError, DeadlineError, HangUpError, NotReadyError, OverloadError, shown
from lensbox.serve.http.answers import Problem, V2Error, json_response
from lensbox.serve.observability.middleware import CLIENT_GONE

_log = logging.getLogger(__name__)

RETRY_AFTER = {"Retry-After": "1"}  # seconds; a full queue empties within one

_OF_ENGINE = {
    OverloadError: (503, "overloaded", RETRY_AFTER),
    NotReadyError: (503, "not_ready", RETRY_AFTER),
    DeadlineError: (504, "deadline_exceeded", None),
}

# The page loads scripts and styles only from this service. frame-ancestors: no other site may embed it.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
# FastAPI's page loads Swagger UI from these hosts, and starts it in the page itself.
_DOCS_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' https://cdn.jsdelivr.net; "
    "style-src 'unsafe-inline' https://cdn.jsdelivr.net; img-src data: https://fastapi.tiangolo.com; "
    "connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS, _DOCS_HEADERS = (
    [
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"permissions-policy", b"camera=(self), microphone=(), geolocation=()"),
        (b"content-security-policy", policy.encode()),
    ]
    for policy in (_POLICY, _DOCS_POLICY)
)
_CLOSE = (b"connection", b"close")


def error_response(
    path: str, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an error answer in the form of the protocol that `path` belongs to."""
    if is_v2(path):
        return json_response(V2Error(message), status, headers)
    problem = Problem("about:blank", HTTPStatus(status).phrase, status, message, code)
    return json_response(problem, status, headers, "application/problem+json")


def is_v2(path: str) -> bool:
    """Return whether a path belongs to protocol v2."""
    return f"{path}/".startswith("/v2/")


def answer_to(error: BaseException, scope: Scope) -> Response:
    """Return the answer to an exception of any kind. Log a defect with its traceback."""
    path = scope["path"]
    if isinstance(error, asyncio.CancelledError):  # uvicorn cancels requests at shutdown
        error = NotReadyError("the service is shutting down")
    if isinstance(error, ApiError):
        return error_response(path, error.status, error.code, error.message, error.headers)
    if isinstance(error, HangUpError | ClientDisconnect):
        return Response(status_code=CLIENT_GONE)
    if isinstance(error, HTTPException):
        return _answer_to_path(error, f"{scope['method']} {shown(path)}", path)
    for kind, (status, code, headers) in _OF_ENGINE.items():
        if isinstance(error, kind):
            return error_response(path, status, code, str(error), headers)
    _log.error("a request failed: %s %s", scope["method"], shown(path), exc_info=error)
    message = "the service failed on this request; its log has the cause"
    return error_response(path, 500, "internal_error", message, {"Connection": "close"})


def _answer_to_path(error: HTTPException, where: str, path: str) -> Response:
    if error.status_code == 405:
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        message = f"the endpoint takes {allowed}, got {where}"
        return error_response(path, 405, "method_not_allowed", message, {"Allow": allowed})
    return error_response(path, error.status_code, "not_found", f"there is no endpoint {where}")


async def raise_again(_: Request, error: Exception) -> NoReturn:
    """Replace the handlers of FastAPI, so that `Edge` gets every exception."""
    raise error


class Edge:
    """Turn exceptions into answers, add the headers of security and of the model.

    Close connections while the service drains.
    """

    def __init__(self, app: ASGIApp, state: FastAPI) -> None:
        self._app = app
        self._state = state.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = message["headers"]
                headers += _DOCS_HEADERS if scope["path"] == "/docs" else _HEADERS
                if (served := scope.get("lensbox.model")) is not None:
                    headers += served.headers
                if self._state.service.draining:
                    headers.append(_CLOSE)
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except (Exception, asyncio.CancelledError) as error:
            if begun:
                raise
            await answer_to(error, scope)(scope, receive, send_with_headers)
