"""The table of paths, for routes, API keys, admission, metrics and logs, and the OpenAPI document of it."""

import inspect
import re
from typing import Any

from fastapi import FastAPI
from msgspec.json import schema_components

from lensbox.common.detections import ImageDetections
from lensbox.serve.http import detect, info, loss, repository, v2
from lensbox.serve.http.answers import (
    PROBLEM,
    Health,
    InferAnswer,
    LossAnswer,
    ModelMetadata,
    Problem,
    V2Error,
    is_v2,
)
from lensbox.serve.http.service import Endpoint
from lensbox.serve.requests.body import FORM, JSON


def _probe(path: str, answer: Any, tag: str, answers: Any = None) -> Endpoint:
    return Endpoint("GET", path, answer, tag, answers, is_open=True, is_probe=True)


def _of_model(method: str, path: str, answer: Any, answers: Any = None, **more: Any) -> list[Endpoint]:
    """Return the endpoints of a path below a model of protocol v2, and below its version."""
    model = "/v2/models/{name}"
    return [
        Endpoint(method, f"{model}{path}", answer, "v2", answers, **more),
        Endpoint(method, f"{model}/versions/{{version}}{path}", answer, **more),
    ]


# The first paths are found first.
ENDPOINTS = (
    Endpoint(
        *("POST", "/v1/detect", detect.detect, "detect", ImageDetections),
        query=detect.DetectParameters,
        is_admitted=True,
    ),
    *_of_model("POST", "/infer", v2.infer, InferAnswer, is_admitted=True),
    Endpoint("POST", "/v1/loss", loss.loss, "loss", LossAnswer, is_admitted=True),
    Endpoint("GET", "/v1/model", info.model, "model"),
    _probe("/livez", info.livez, "health", Health),
    _probe("/healthz", info.livez, ""),
    _probe("/readyz", info.readyz, "health", Health),
    Endpoint("GET", "/metrics", info.metrics, "metrics", is_probe=True),
    Endpoint("GET", "/v2", info.server_metadata, "v2"),
    _probe("/v2/health/live", info.server_live, "v2"),
    _probe("/v2/health/ready", info.server_ready, "v2"),
    Endpoint("GET", "/v1/models", info.models, "model"),
    Endpoint("GET", "/v1/models/{name}", info.model),
    Endpoint("POST", "/v1/models/{name}/detect", detect.detect, is_admitted=True),
    Endpoint("POST", "/v1/models/{name}/loss", loss.loss, is_admitted=True),
    Endpoint("POST", "/v2/repository/index", repository.index, "v2"),
    Endpoint("POST", "/v2/repository/models/{name}/load", repository.load, "v2"),
    Endpoint("POST", "/v2/repository/models/{name}/unload", repository.unload, "v2"),
    Endpoint("GET", "/v2/models/stats", info.model_statistics),
    *_of_model("GET", "/config", info.model_config),
    *_of_model("GET", "/stats", info.model_statistics),
    *_of_model("GET", "/ready", info.model_ready),
    *_of_model("GET", "", info.model_metadata, ModelMetadata),
    Endpoint("GET", "/", info.page, is_open=True),
    Endpoint("GET", "/page/{name}", info.page_file, is_open=True),
    Endpoint("GET", "/docs", info.docs, is_open=True),
    Endpoint("GET", "/docs-files/{name}", info.docs_file, is_open=True),
)

_BINARY = {"type": "string", "format": "binary"}
_FORM_FIELDS = {
    "type": "object",
    "properties": {"image": _BINARY, "file": _BINARY},
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
}


def _schema(kind: type[Any]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


# The schemas of request bodies by media type, by the tag of the endpoint.
_BODIES: dict[str, dict[str, Any]] = {
    "detect": {FORM: _FORM_FIELDS, "image/*": _BINARY},
    "loss": {JSON: {"anyOf": [_schema(loss.LossOfBoxes), _schema(loss.LossOfImages)]}},
    "v2": {JSON: {"type": "object"}, "application/octet-stream": _BINARY},
}


def describe(app: FastAPI, needs_key: bool) -> None:
    """Make /openapi.json of an app describe the endpoints. needs_key: whether requests need an API key."""
    described = [one for one in ENDPOINTS if one.tag]
    answers = {one.answers for one in described if one.answers is not None}
    types = [*answers, loss.LossOfBoxes, loss.LossOfImages, Problem, V2Error]
    _, schemas = schema_components(types, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for one in described:
        paths.setdefault(one.path, {})[one.method.lower()] = operation = _operation(one)
        if needs_key and not one.is_open:
            operation["security"] = [{"bearer": []}]
    components: dict[str, Any] = {"schemas": schemas}
    if needs_key:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    info = {"title": app.title, "summary": app.summary, "version": app.version}
    document = {
        "openapi": app.openapi_version,
        "info": info,
        "servers": [{"url": "."}],  # beside this document, also behind a prefix
        "paths": paths,
        "components": components,
    }
    app.openapi = lambda: document  # type: ignore[method-assign]  # as FastAPI's documentation does


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    summary, _, description = (inspect.getdoc(endpoint.answer) or "").partition("\n\n")
    answer = {JSON: {} if endpoint.answers is None else _schema(endpoint.answers)}
    if endpoint.tag == "metrics":
        answer = {"text/plain": {"type": "string"}}
    error = {JSON: _schema(V2Error)} if is_v2(endpoint.path) else {PROBLEM: _schema(Problem)}
    names = re.findall(r"{(\w+)}", endpoint.path)
    places = [("path", name, {"type": "string"}) for name in names]
    if endpoint.query is not None:
        fields = schema_components([endpoint.query])[1][endpoint.query.__name__]["properties"]
        places += [("query", name, schema) for name, schema in fields.items()]
    operation: dict[str, Any] = {
        "tags": [endpoint.tag],
        "operationId": endpoint.answer.__name__,
        "summary": summary,
        "description": description,
        "parameters": [
            {"name": name, "in": place, "required": place == "path", "schema": schema}
            for place, name, schema in places
        ],
        "responses": {
            "200": {"description": "Success", **_content(answer)},
            "default": {"description": "An error; docs/service.md lists the codes", **_content(error)},
        },
    }
    if endpoint.is_admitted:
        operation["requestBody"] = {"required": True, **_content(_BODIES[endpoint.tag])}
    return operation


def _content(schemas: dict[str, Any]) -> dict[str, Any]:
    return {"content": {name: {"schema": schema} for name, schema in schemas.items()}}
