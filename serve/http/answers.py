"""The answers of all endpoints as types, for JSON and for the OpenAPI document, and the answers to errors.

`ImageDetections` of `common` describes the answer of /v1/detect. Errors are problem documents (RFC 9457), or
{"error": message} under /v2.
"""

import asyncio
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Request, Response
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Scope

from lensbox.serve.errors import ApiError, NotReadyError, shortened
from lensbox.serve.requests.body import JSON

_log = logging.getLogger(__name__)

CLIENT_GONE = 499  # nginx's status for a client that closed the connection; only logs and metrics show it
PROBLEM = "application/problem+json"
STATE = "lensbox.connection"  # key of the ASGI scope: the connection, if the service has its own server


class Problem(Struct):
    """The body of every error answer outside /v2, as application/problem+json (RFC 9457)."""

    type: Literal["about:blank"]
    title: Annotated[str, Meta(description="the status in words")]
    status: int
    detail: Annotated[str, Meta(description="names the argument, the rule and the value received")]
    code: Annotated[str, Meta(description="a stable word for programs")]


class V2Error(Struct):
    """The body of every error answer under /v2."""

    error: Annotated[str, Meta(description="names the argument, the rule and the value received")]


class LossAnswer(Struct):
    """The loss of boxes.

    loss: the detector's own loss, or the mean of 1 - GIoU over the predictions with a target. slots: number
    of predictions with a target. gradient: nested as predictions; only on request.
    """

    loss: float | None
    slots: int
    gradient: list[Any] | UnsetType = UNSET


class Health(Struct, omit_defaults=True):
    """models: the versions that serve, by model. missing: reasons of engines that are not ready, while others
    are."""

    status: Literal["alive", "ready"]
    models: dict[str, str] = {}
    missing: list[str] = []


class TensorSpec(Struct):
    """Name, datatype and shape of an input or output; -1 marks a side that varies."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class ModelMetadata(Struct):
    name: str
    versions: list[str]
    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class InferTensor(TensorSpec):
    """data: left out for a binary tensor."""

    parameters: dict[str, Any] | UnsetType = UNSET
    data: list[Any] | UnsetType = UNSET


class InferAnswer(Struct):
    model_name: str
    model_version: str
    outputs: list[InferTensor]
    id: str | UnsetType = UNSET


def json_response(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None, media_type: str = JSON
) -> Response:
    """Return a response with JSON. NaN and infinity become null."""
    return Response(msgspec.json.encode(content), status, headers, media_type)


def error_response(path: str, error: ApiError) -> Response:
    """Return an error answer in the form of the protocol that `path` belongs to."""
    status, message = error.status, error.message
    if is_v2(path):
        return json_response(V2Error(message), status, error.headers)
    problem = Problem("about:blank", HTTPStatus(status).phrase, status, message, error.code)
    return json_response(problem, status, error.headers, PROBLEM)


def is_v2(path: str) -> bool:
    """Return whether a path belongs to protocol v2."""
    return f"{path}/".startswith("/v2/")


def answer_to(error: BaseException, scope: Scope) -> Response:
    """Return the answer to an exception of any kind. Log a defect with its traceback."""
    is_cancelled = isinstance(error, asyncio.CancelledError)
    connection = scope.get(STATE)  # None in a replica of Ray, which cancels for a hang-up alone
    if isinstance(error, ClientDisconnect) and connection is not None and connection.fault is not None:
        error = connection.fault
    if isinstance(error, ClientDisconnect) or (is_cancelled and (connection is None or connection.is_lost)):
        return Response(status_code=CLIENT_GONE)
    if is_cancelled:
        error = NotReadyError("the service is shutting down")
    if not isinstance(error, ApiError):
        _log.error("a request failed: %s %s", scope["method"], shortened(scope["path"]), exc_info=error)
        message = "the service failed on this request; its log has the cause"
        error = ApiError(500, "internal_error", message, {"Connection": "close"})
    return error_response(scope["path"], error)


async def no_endpoint(request: Request, error: HTTPException) -> Response:
    """Answer a request for a path or a method that no endpoint has."""
    path = request.scope["path"]
    where = f"{request.method} {shortened(path)}"
    if error.status_code != 405:
        return error_response(path, ApiError(404, "not_found", f"there is no endpoint {where}"))
    allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
    message = f"the endpoint takes {allowed}, got {where}"
    return error_response(path, ApiError(405, "method_not_allowed", message, {"Allow": allowed}))
