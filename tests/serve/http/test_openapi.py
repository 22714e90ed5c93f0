"""Requests that schemathesis makes from the interface's own description: none may be answered with a 500."""

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

_CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
_SETTINGS = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)


@pytest.fixture(scope="module")
def operations(client: httpx.Client) -> dict[str, Any]:
    """Each method of each path."""
    schema = schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")
    found = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    operations = {f"{operation.method.upper()} {operation.path}": operation for operation in found}
    assert set(operations) == set(_OPERATIONS)
    return operations


_V2_MODEL = "/v2/models/{name}"
_OPERATIONS = [
    "GET /livez",
    "GET /readyz",
    "GET /metrics",
    "GET /v1/model",
    "POST /v1/detect",
    "POST /v1/loss",
    "GET /v2",
    "GET /v2/health/live",
    "GET /v2/health/ready",
    "GET /v1/models",
    "POST /v2/repository/index",
    "POST /v2/repository/models/{name}/load",
    "POST /v2/repository/models/{name}/unload",
    *(f"GET {_V2_MODEL}{what}" for what in ("", "/ready")),
    f"POST {_V2_MODEL}/infer",
]


def test_operations_have_ids_and_no_stray_parameters(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    described = [operation for path in document["paths"].values() for operation in path.values()]
    ids = [operation["operationId"] for operation in described]
    assert len(set(ids)) == len(ids)
    assert {"detect", "loss", "model", "livez", "readyz", "infer", "model_metadata"} < set(ids)
    places = {(one["name"], one["in"]) for operation in described for one in operation.get("parameters", [])}
    query = {(name, "query") for name in ("score_threshold", "iou_threshold", "orientation", "tiles")}
    assert places == {("name", "path"), *query}


@pytest.mark.parametrize("name", _OPERATIONS)
def test_answers_conform_to_the_openapi_document(
    name: str, operations: dict[str, Any], client: httpx.Client
) -> None:
    @_SETTINGS
    @given(case=operations[name].as_strategy())
    def ask(case: Any) -> None:
        if "name" in case.path_parameters:
            case.path_parameters = {"name": "face_detector"}
        case.call_and_validate(checks=_CHECKS, timeout=60)

    ask()
    assert client.get("/readyz").status_code == 200
