"""Schemas of answers, only for the OpenAPI document. `requests` has the schemas of requests."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lensbox.serve.http.middleware import is_open

Box = tuple[float, float, float, float]
BINARY: dict[str, Any] = {"type": "string", "format": "binary"}


class Detection(BaseModel):
    box: Box = Field(description="x1, y1, x2, y2 in pixels of the upright photograph at full size")
    score: float
    label: str = Field("", description="name of the class; only if the artifact has `classes`")
    extras: dict[str, Any] = Field(
        {},
        description="further outputs by name, nested by the shapes in the artifact's `extras`, points in "
        "pixels of the upright photograph; only if the artifact has `extras`",
    )


class DetectAnswer(BaseModel):
    width: int = Field(description="width of the upright photograph in pixels")
    height: int
    detections: list[Detection] = Field(description="best first")


class Problem(BaseModel):
    """The body of every error answer outside /v2, as application/problem+json (RFC 9457)."""

    type: Literal["about:blank"]
    title: str = Field(description="the status in words")
    status: int
    detail: str = Field(description="names the argument, the rule and the value received")
    code: str = Field(description="a stable word for programs")


class LossAnswer(BaseModel):
    loss: float | None = Field(
        description="the detector's own loss, or the mean of 1 - GIoU over the predictions with a target"
    )
    slots: int = Field(description="number of predictions with a target")
    gradient: list[Any] = Field([], description="nested as predictions; only on request")


class Limits(BaseModel):
    max_body_bytes: int
    max_json_bytes: int
    max_pixels: int
    max_boxes: int


class ServiceInfo(BaseModel):
    version: str
    torch: str
    device: str
    limits: Limits


class ModelAnswer(BaseModel):
    """The artifact's metadata, and the service's versions, device and limits."""

    model_config = ConfigDict(extra="allow")

    name: str
    service: ServiceInfo


class Health(BaseModel):
    status: Literal["alive", "ready"]
    missing: list[str] = Field([], description="reasons of engines that are not ready, while others are")


class V2Error(BaseModel):
    """The body of every error answer under /v2."""

    error: str = Field(description="names the argument, the rule and the value received")


class TensorInfo(BaseModel):
    name: str
    datatype: str
    shape: list[int] = Field(description="-1 marks a side that varies")


class ModelMetadata(BaseModel):
    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]


class InferTensor(TensorInfo):
    parameters: dict[str, Any] = {}
    data: list[Any] = Field([], description="left out for a binary tensor")


class InferAnswer(BaseModel):
    model_name: str
    model_version: str
    id: str = ""
    outputs: list[InferTensor]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return these statuses as problem documents, for `responses` of a route."""
    content = {"application/problem+json": {"schema": Problem.model_json_schema()}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


def parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    """Return a model's fields as query parameters. Routes read them with `query_parameters`."""
    return [
        {"name": name, "in": "query", "required": False, "schema": field}
        for name, field in model.model_json_schema()["properties"].items()
    ]


def body(schemas: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a required request body. schemas: by media type."""
    content = {name: {"schema": schema} for name, schema in schemas.items()}
    return {"requestBody": {"required": True, "content": content}}


def require_keys(document: dict[str, Any]) -> None:
    """Add the API key to an OpenAPI document, and 401 to each operation that needs a key."""
    document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for operation in () if is_open(path) else operations.values():
            kind = "application/json" if f"{path}/".startswith("/v2/") else "application/problem+json"
            operation["responses"]["401"] = {"description": "No known key", "content": {kind: {}}}
            operation["security"] = [{"bearer": []}]
