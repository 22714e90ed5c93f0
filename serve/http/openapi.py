"""The OpenAPI document, and the schemas of answers. `requests` has the schemas of requests."""

import inspect
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

from lensbox.serve.http.endpoint import Endpoint
from lensbox.serve.http.errors import is_v2

JSON = "application/json"
_SCHEMAS = "#/components/schemas/"
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


def describe(app: FastAPI, endpoints: Sequence[Endpoint], needs_key: bool) -> None:
    """Make /openapi.json of an app describe these endpoints. needs_key: whether requests need an API key."""
    described = [one for one in endpoints if one.tag]
    models: set[type[BaseModel]] = {one.answers for one in described if one.answers is not None}
    kinds: list[Any] = [(model, "serialization") for model in (*models, Problem, V2Error)]
    _, schemas = models_json_schema(kinds, ref_template=f"{_SCHEMAS}{{model}}")
    paths: dict[str, dict[str, Any]] = {}
    for one in described:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, needs_key and not one.is_open)
    components = {"schemas": schemas["$defs"]}
    if needs_key:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    info = {"title": app.title, "summary": app.summary, "version": app.version}
    document = {"openapi": app.openapi_version, "info": info, "paths": paths, "components": components}
    app.openapi = lambda: document  # type: ignore[method-assign]  # as FastAPI's documentation does


def _operation(endpoint: Endpoint, needs_key: bool) -> dict[str, Any]:
    summary, _, description = (inspect.getdoc(endpoint.answer) or "").partition("\n\n")
    error, kind = ("V2Error", JSON) if is_v2(endpoint.path) else ("Problem", "application/problem+json")
    errors = {
        str(status): _response(HTTPStatus(status).phrase, {kind: {"$ref": f"{_SCHEMAS}{error}"}})
        for status in (*endpoint.errors, *([401] if needs_key else []))
    }
    operation: dict[str, Any] = {
        "tags": [endpoint.tag],
        "operationId": endpoint.answer.__name__,
        "summary": summary,
        "description": description,
        "parameters": [*_path_parameters(endpoint.path), *_query_parameters(endpoint.query)],
        "responses": {"200": _response("Success", _answers(endpoint)), **errors},
    }
    if endpoint.bodies:
        operation["requestBody"] = {"required": True, **_content(endpoint.bodies)}
    if needs_key:
        operation["security"] = [{"bearer": []}]
    return operation


def _answers(endpoint: Endpoint) -> Mapping[str, Any]:
    """Return the schemas of an answer by media type."""
    if endpoint.tag == "metrics":
        return {"text/plain": {"type": "string"}}
    if endpoint.answers is None:
        return {JSON: {}}
    return {JSON: {"$ref": f"{_SCHEMAS}{endpoint.answers.__name__}"}}


def _response(description: str, schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": description, **_content(schemas)}


def _content(schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {"content": {name: {"schema": schema} for name, schema in schemas.items()}}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(query: type[BaseModel] | None) -> list[dict[str, Any]]:
    fields = {} if query is None else query.model_json_schema()["properties"]
    return [{"name": name, "in": "query", "required": False, "schema": fields[name]} for name in fields]
