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

from lensbox.serve.http.paths import ENDPOINTS

_CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
_SETTINGS = settings(
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)


def test_describes_each_path_once_and_all_parameters(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    described = {
        (method.upper(), path): operation
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert set(described) == {(one.method, one.path) for one in ENDPOINTS if one.tag}
    assert len({operation["operationId"] for operation in described.values()}) == len(described)
    places = {(one["name"], one["in"]) for operation in described.values() for one in operation["parameters"]}
    query = {(name, "query") for name in ("score_threshold", "iou_threshold", "orientation", "tiles")}
    assert places == {("name", "path"), *query}


@pytest.mark.parametrize("examples", [2, pytest.param(10, marks=pytest.mark.exhaustive)])
def test_answers_conform_to_the_openapi_document(examples: int, client: httpx.Client) -> None:
    schema = schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)

        @settings(_SETTINGS, max_examples=examples)
        @given(case=result.ok().as_strategy())
        def ask(case: Any) -> None:
            if "name" in case.path_parameters:
                case.path_parameters = {"name": "face_detector"}
            case.call_and_validate(checks=_CHECKS, timeout=60)

        ask()
    assert client.get("/readyz").status_code == 200
