"""The OpenAPI document of the table of paths."""

import inspect
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from msgspec import Struct
from msgspec.json import schema_components

from lensbox.serve.http.answers import Problem, V2Error, is_v2
from lensbox.serve.http.detect import DetectQuestion
from lensbox.serve.http.loss import LossQuestion
from lensbox.serve.http.service import Endpoint
from lensbox.serve.requests.body import FORM, JSON

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
    types = [*answers, DetectQuestion, LossQuestion, Problem, V2Error]
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
