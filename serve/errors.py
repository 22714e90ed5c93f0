"""One shape for every error answer: RFC 9457's problem documents, and {"error": message} under /v2."""

import reprlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from lensbox.serve.engine.errors import DeadlineError, NotReadyError, OverloadError

RETRY_AFTER = {"Retry-After": "1"}  # seconds; a full queue empties within one

_shorten = reprlib.Repr()
_shorten.maxstring = _shorten.maxother = _shorten.maxlong = 60
_shorten.maxlist = _shorten.maxdict = 4
_shorten.maxlevel = 3


class ApiError(Exception):
    """An answer that tells the client what was wrong.

    status: HTTP status; code: a stable word for programs; message: a sentence for people, which names the
    argument, the rule and the value received.
    """

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers


class HangUpError(Exception):
    """The client hung up before its answer was ready."""


def shown(value: object) -> str:
    """`repr` of a value from a client, cut to a length fit for a message."""
    return _shorten.repr(value)


def add_error_handlers(app: FastAPI) -> None:
    """Makes `app` answer every error in the shape above."""
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(OverloadError, _on_overloaded)
    app.add_exception_handler(DeadlineError, _on_late)
    app.add_exception_handler(NotReadyError, _on_not_ready)
    app.add_exception_handler(RequestValidationError, _on_invalid_parameter)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(HangUpError, _on_client_gone)
    app.add_exception_handler(ClientDisconnect, _on_client_gone)
    app.add_exception_handler(Exception, _on_defect)


def problem(status: int, code: str, message: str) -> dict[str, Any]:
    """A problem document."""
    # "about:blank": the title is the status in words, and `code` says which problem it is.
    title = HTTPStatus(status).phrase
    return {"type": "about:blank", "title": title, "status": status, "detail": message, "code": code}


def error_response(
    request: Request, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The JSON answer of one error, in the shape of the protocol that `request` speaks."""
    return _response(request.scope["path"], status, code, message, headers)


def overloaded(path: str, message: str) -> JSONResponse:
    """The answer to a request for which there is no room."""
    return _response(path, 503, "overloaded", message, RETRY_AFTER)


def _response(
    path: str, status: int, code: str, message: str, headers: Mapping[str, str] | None
) -> JSONResponse:
    content: dict[str, Any] = {"error": message}
    media_type = "application/json"
    if not f"{path}/".startswith("/v2/"):
        content, media_type = problem(status, code, message), "application/problem+json"
    return JSONResponse(content, status, dict(headers or {}), media_type)


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(request, error.status, error.code, error.message, error.headers)


async def _on_overloaded(request: Request, error: Exception) -> Response:
    return overloaded(request.scope["path"], str(error))


async def _on_late(request: Request, error: Exception) -> Response:
    return error_response(request, 504, "deadline_exceeded", str(error))


async def _on_not_ready(request: Request, error: Exception) -> Response:
    return error_response(request, 503, "not_ready", str(error), RETRY_AFTER)


async def _on_invalid_parameter(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return error_response(request, 422, "invalid_parameter", parameter_message(error.errors()[0]))


def parameter_message(fault: Mapping[str, Any], kind: str = "query parameter") -> str:
    """What is wrong with a parameter, of what pydantic says of it. kind: what it is called."""
    name = fault["loc"][-1]
    if fault["type"] == "extra_forbidden":
        return f"there is no {kind} {shown(name)}; it came with the value {shown(fault['input'])}"
    rule = fault["msg"].replace("Input should be", "must be")
    return f"{name} {rule}, got {shown(fault['input'])}"


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = f"{request.method} {shown(request.url.path)}"
    if error.status_code == 404:
        return error_response(request, 404, "not_found", f"there is no endpoint {where}")
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        message = f"the endpoint takes {allowed}, got {where}"
        return error_response(request, 405, "method_not_allowed", message, error.headers)
    return error_response(request, error.status_code, "http_error", str(error.detail), error.headers)


async def _on_client_gone(_: Request, __: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it; the access log shows nginx's "client closed request"


async def _on_defect(request: Request, _: Exception) -> Response:
    # Starlette raises the exception again after this answer: the server's log then has the traceback, and the
    # connection is closed. A client that is not told so may lose its next request.
    message = "the service failed on this request; its log has the cause"
    return error_response(request, 500, "internal_error", message, {"Connection": "close"})
