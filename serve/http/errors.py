"""Error answers: problem documents (RFC 9457), and {"error": message} under /v2."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from lensbox.serve.errors import ApiError, DeadlineError, HangUpError, NotReadyError, OverloadError, shown
from lensbox.serve.observability.middleware import CLIENT_GONE

RETRY_AFTER = {"Retry-After": "1"}  # seconds; a full queue empties within one

_EXPECTED = (ApiError, OverloadError, NotReadyError, DeadlineError)
_CLIENT_GONE = (HangUpError, ClientDisconnect)


def add_error_handlers(app: FastAPI) -> None:
    """Make `app` answer every expected exception with an error document."""
    for kind in _EXPECTED:
        app.add_exception_handler(kind, _on_expected)
    app.add_exception_handler(HTTPException, _on_http_exception)
    for gone in _CLIENT_GONE:
        app.add_exception_handler(gone, _on_client_gone)


def error_response(
    path: str, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return an error answer in the form of the protocol that `path` belongs to."""
    if f"{path}/".startswith("/v2/"):
        return JSONResponse({"error": message}, status, dict(headers or {}), "application/json")
    title = HTTPStatus(status).phrase
    content = {"type": "about:blank", "title": title, "status": status, "detail": message, "code": code}
    return JSONResponse(content, status, dict(headers or {}), "application/problem+json")


def response_to(error: Exception, path: str) -> JSONResponse:
    """Return the answer to an ApiError or to one of the engine's errors."""
    if isinstance(error, ApiError):
        return error_response(path, error.status, error.code, error.message, error.headers)
    if isinstance(error, OverloadError):
        return error_response(path, 503, "overloaded", str(error), RETRY_AFTER)
    if isinstance(error, DeadlineError):
        return error_response(path, 504, "deadline_exceeded", str(error))
    assert isinstance(error, NotReadyError)
    return error_response(path, 503, "not_ready", str(error), RETRY_AFTER)


async def _on_expected(request: Request, error: Exception) -> Response:
    return response_to(error, request.scope["path"])


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    where = f"{request.method} {shown(path)}"
    if error.status_code == 404:
        return error_response(path, 404, "not_found", f"there is no endpoint {where}")
    if error.status_code == 405:
        headers: dict[str, Any] = dict(error.headers or {})
        message = f"the endpoint takes {headers.get('Allow', 'another method')}, got {where}"
        return error_response(path, 405, "method_not_allowed", message, headers)
    return error_response(path, error.status_code, "http_error", str(error.detail), error.headers)


async def _on_client_gone(_: Request, __: Exception) -> Response:
    return Response(status_code=CLIENT_GONE)
