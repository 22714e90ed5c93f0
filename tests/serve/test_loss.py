"""POST /v1/loss over a real artifact."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import torch
from problems import problem_of

from lensbox.runtime.artifact import Artifact

_PREDICTIONS = [[10, 10, 30.5, 31], [40, 5.25, 60, 25], [0, 0, 8, 8], [3, 4, 9, 9]]
_TARGETS = [[12, 9, 33, 30], [42, 8, 58, 30], [20, 20, 28, 30], [0, 0, 0, 0]]


def _tensor(boxes: list[Any]) -> torch.Tensor:
    return torch.tensor(boxes, dtype=torch.float64)


@pytest.mark.parametrize("batched", [False, True])
def test_the_loss_is_that_of_the_artifact(client: httpx.Client, artifact: Artifact, batched: bool) -> None:
    predictions: list[Any] = [_PREDICTIONS, _TARGETS] if batched else _PREDICTIONS
    targets: list[Any] = [_TARGETS, _TARGETS] if batched else _TARGETS
    response = client.post("/v1/loss", json={"predictions": predictions, "targets": targets})
    assert response.status_code == 200
    expected = artifact.loss(_tensor(predictions), _tensor(targets))
    # The fourth slot's target has y2 = 0: padding.
    assert response.json() == {"loss": expected, "slots": 6 if batched else 3}
    assert 0 < expected < 2


def test_a_hand_worked_value(client: httpx.Client) -> None:
    # Intersection 1, union 7, hull 9: GIoU = 1/7 - 2/9.
    response = client.post("/v1/loss", json={"predictions": [[0, 0, 2, 2]], "targets": [[1, 1, 3, 3]]})
    assert response.json() == {"loss": pytest.approx(1 - (1 / 7 - 2 / 9), abs=1e-6), "slots": 1}


@pytest.mark.parametrize("content_type", [None, "", "application/json", "text/plain", "multipart/form-data"])
def test_the_content_type_does_not_matter(client: httpx.Client, content_type: str | None) -> None:
    body = json.dumps({"predictions": _PREDICTIONS, "targets": _TARGETS}).encode()
    headers = {} if content_type is None else {"Content-Type": content_type}
    response = client.post("/v1/loss", content=body, headers=headers)
    assert response.status_code == 200
    assert response.json()["slots"] == 3


@pytest.mark.parametrize("boxes", [[], [[], []], [[0, 0, 0, 0]]])
def test_nothing_to_compare_is_no_loss(client: httpx.Client, boxes: list[Any]) -> None:
    response = client.post("/v1/loss", json={"predictions": boxes, "targets": boxes})
    assert response.json() == {"loss": 0, "slots": 0}


def test_the_largest_finite_numbers_give_a_finite_loss(client: httpx.Client) -> None:
    largest = torch.finfo(torch.float64).max
    box, target = [-largest, -largest, largest, largest], [largest, -largest, -largest, largest]
    response = client.post("/v1/loss", json={"predictions": [box], "targets": [target]})
    assert response.status_code == 200
    assert 0 <= response.json()["loss"] <= 2


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "empty_body"),
        (b"not json", 422, "invalid_json"),
        (b"[" * 100_000, 422, "invalid_json"),
        (b'{"predictions": [[NaN, 0, 1, 1]], "targets": [[0, 0, 1, 1]]}', 422, "invalid_json"),
        (b'{"predictions": [[0, 0, 1, 1]]}', 422, "invalid_boxes"),
        (b'{"predictions": [[0, 0, 1]], "targets": [[0, 0, 1, 1]]}', 422, "invalid_boxes"),
        (b'{"predictions": "\\ud800", "targets": []}', 422, "invalid_boxes"),
        (b" " * ((1 << 20) + 1), 413, "body_too_large"),
    ],
)
def test_bad_bodies(client: httpx.Client, body: bytes, status: int, code: str) -> None:
    response = client.post("/v1/loss", content=body)
    assert response.status_code == status
    assert problem_of(response)["code"] == code
    assert client.get("/readyz").status_code == 200


def test_there_are_no_query_parameters(client: httpx.Client) -> None:
    response = client.post("/v1/loss?weight=1", json={"predictions": [], "targets": []})
    assert response.status_code == 422
    assert problem_of(response) == {
        "code": "invalid_parameter",
        "message": "there is no query parameter 'weight'; it came with the value '1'",
    }


def test_too_many_boxes(client: httpx.Client) -> None:
    boxes = [[0, 0, 1, 1]] * 101
    response = client.post("/v1/loss", json={"predictions": boxes, "targets": boxes})
    assert response.status_code == 413
    assert problem_of(response)["message"] == "predictions must have at most 100 boxes, got 101"


def test_a_model_without_a_loss_says_so(
    start_service: Callable[..., Any],
    fake: Any,
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[..., None],
) -> None:
    monkeypatch.setattr(fake.metadata, "methods", ("preprocess", "detect", "restore"))
    with_model = start_service(lambda: fake).client
    wait_until(lambda: with_model.get("/readyz").status_code == 200)
    response = with_model.post("/v1/loss", json={"predictions": _PREDICTIONS, "targets": _TARGETS})
    assert response.status_code == 422
    assert problem_of(response)["code"] == "no_loss"
    assert fake.calls == []
