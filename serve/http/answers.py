"""The answers of all endpoints as types, for JSON and for the OpenAPI document.

`ImageDetections` of `common` describes the answer of /v1/detect.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Response
from msgspec import UNSET, Meta, Struct, UnsetType

from lensbox.serve.requests.body import JSON
from lensbox.serve.requests.v2_request import TensorSpec


def json_response(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None, media_type: str = JSON
) -> Response:
    """Return a response with JSON. NaN and infinity become null."""
    return Response(msgspec.json.encode(content), status, headers, media_type)


class Problem(Struct):
    """The body of every error answer outside /v2, as application/problem+json (RFC 9457)."""

    type: Literal["about:blank"]
    title: Annotated[str, Meta(description="the status in words")]
    status: int
    detail: Annotated[str, Meta(description="names the argument, the rule and the value received")]
    code: Annotated[str, Meta(description="a stable word for programs")]


class LossAnswer(Struct):
    """The loss of boxes.

    loss: the detector's own loss, or the mean of 1 - GIoU over the predictions with a target. slots: number
    of predictions with a target. gradient: nested as predictions; only on request.
    """

    loss: float | None
    slots: int
    gradient: list[Any] | UnsetType = UNSET


class Limits(Struct):
    max_body_bytes: int
    max_json_bytes: int
    max_pixels: int
    max_boxes: int


class ServiceInfo(Struct):
    model: str
    model_version: str
    version: str
    torch: str
    device: str
    limits: Limits


class ModelAnswer(Struct):
    """The artifact's metadata, and the service's versions, device and limits."""

    name: str
    service: ServiceInfo


class Health(Struct, omit_defaults=True):
    """models: the versions that serve, by model. missing: reasons of engines that are not ready, while others
    are."""

    status: Literal["alive", "ready"]
    models: dict[str, str] = {}
    missing: list[str] = []


class V2Error(Struct):
    """The body of every error answer under /v2."""

    error: Annotated[str, Meta(description="names the argument, the rule and the value received")]


class ModelMetadata(Struct):
    name: str
    versions: list[str]
    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class InferTensor(Struct):
    """data: left out for a binary tensor."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    parameters: dict[str, Any] | UnsetType = UNSET
    data: list[Any] | UnsetType = UNSET


class InferAnswer(Struct):
    model_name: str
    model_version: str
    outputs: list[InferTensor]
    id: str | UnsetType = UNSET
