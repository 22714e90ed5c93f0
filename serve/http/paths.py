"""The table of paths, for routes, API keys, admission, metrics and logs, and the OpenAPI document of it."""

import inspect
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from msgspec import Struct
from msgspec.json import schema_components

from lensbox.common.detections import ImageDetections
from lensbox.serve.http import detect, info, loss, repository, v2
from lensbox.serve.http.answers import (
    Health,
    InferAnswer,
    LossAnswer,
    ModelAnswer,
    ModelMetadata,
    Problem,
    V2Error,
    is_v2,
)
from lensbox.serve.http.service import Endpoint
from lensbox.serve.requests.body import FORM, JSON

_POSTED = (400, 408, 413, 415, 422, 503, 504)


def _probe(path: str, answer: Any, tag: str, answers: Any = None) -> Endpoint:
    return Endpoint("GET", path, answer, tag, answers, (503,), is_open=True, is_probe=True)


def _of_admin(action: str, answer: Any) -> Endpoint:
    """Return the endpoint of a change of models. The answer itself checks the admin key."""
    path = f"/v2/repository/models/{{name}}/{action}"
    return Endpoint("POST", path, answer, "v2", errors=(400, 401, 403, 409))


def _of_model(
    method: str,
    path: str,
    answer: Any,
    answers: Any = None,
    errors: tuple[int, ...] = (400, 404, 503),
    **more: Any,
) -> tuple[Endpoint, Endpoint]:
    """Return the endpoints of a path below a model of protocol v2, and below its version."""
    model = "/v2/models/{name}"
    return (
        Endpoint(method, f"{model}{path}", answer, "v2", answers, errors, **more),
        Endpoint(method, f"{model}/versions/{{version}}{path}", answer, **more),
    )


# The first paths are found first.
ENDPOINTS = (
    Endpoint(
        *("POST", "/v1/detect", detect.detect, "detect", ImageDetections, _POSTED),
        query=detect.DetectParameters,
        is_admitted=True,
    ),
    *_of_model("POST", "/infer", v2.infer, InferAnswer, (*_POSTED, 404), is_admitted=True),
    Endpoint(*("POST", "/v1/loss", loss.loss, "loss", LossAnswer, _POSTED), is_admitted=True),
    Endpoint("GET", "/v1/model", info.model, "model", ModelAnswer, (503,)),
    _probe("/livez", info.livez, "health", Health),
    _probe("/healthz", info.livez, ""),
    _probe("/readyz", info.readyz, "health", Health),
    Endpoint("GET", "/metrics", info.metrics, "metrics", is_probe=True),
    Endpoint("GET", "/v2", info.server_metadata, "v2"),
    _probe("/v2/health/live", info.server_live, "v2"),
    _probe("/v2/health/ready", info.server_ready, "v2"),
    Endpoint("GET", "/v1/models", info.models, "model", errors=(503,)),
    Endpoint("GET", "/v1/models/{name}", info.model, "", ModelAnswer),
    Endpoint("POST", "/v1/models/{name}/detect", detect.detect, is_admitted=True),
    Endpoint("POST", "/v1/models/{name}/loss", loss.loss, is_admitted=True),
    Endpoint("POST", "/v2/repository/index", repository.index, "v2", errors=(400, 503)),
    _of_admin("load", repository.load),
    _of_admin("unload", repository.unload),
    *_of_model("GET", "/ready", info.model_ready),
    *_of_model("GET", "", info.model_metadata, ModelMetadata),
)
PAGES = (
    Endpoint("GET", "/", info.page, is_open=True),
    Endpoint("GET", "/page/{name}", info.page_file, is_open=True),
)

_SCHEMAS = "#/components/schemas/"
_BINARY = {"type": "string", "format": "binary"}
_FORM_FIELDS = {
    "type": "object",
    "properties": {"image": _BINARY, "file": _BINARY},
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
}
# The schemas of request bodies by media type, by the tag of the endpoint.
_BODIES: dict[str, dict[str, Any]] = {
    "detect": {FORM: _FORM_FIELDS, "image/*": _BINARY, JSON: {"$ref": f"{_SCHEMAS}DetectQuestion"}},
    "loss": {JSON: {"$ref": f"{_SCHEMAS}LossQuestion"}},
    "v2": {JSON: {"type": "object"}, "application/octet-stream": _BINARY},
}


def describe(app: FastAPI, endpoints: Sequence[Endpoint], needs_key: bool) -> None:
    """Make /openapi.json of an app describe these endpoints. needs_key: whether requests need an API key."""
    described = [one for one in endpoints if one.tag]
    answers = {one.answers for one in described if one.answers is not None}
    types = [*answers, detect.DetectQuestion, loss.LossQuestion, Problem, V2Error]
    _, schemas = schema_components(types, ref_template=f"{_SCHEMAS}{{name}}")
    paths: dict[str, dict[str, Any]] = {}
    for one in described:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, needs_key and not one.is_open)
    components: dict[str, Any] = {"schemas": schemas}
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
    if endpoint.is_admitted:
        operation["requestBody"] = {"required": True, **_content(_BODIES[endpoint.tag])}
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


def _query_parameters(query: type[Struct] | None) -> list[dict[str, Any]]:
    if query is None:
        return []
    fields = schema_components([query])[1][query.__name__]["properties"]
    return [{"name": name, "in": "query", "required": False, "schema": fields[name]} for name in fields]
