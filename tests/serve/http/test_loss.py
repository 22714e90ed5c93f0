"""POST /v1/loss over a real artifact."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from problems import problem_of
from services import Start
from user_detectors import Brightest

from lensbox.export.pipeline import save_artifact
from lensbox.runtime.artifact import Artifact
from lensbox.serve.loading import load_model
from lensbox.serve.requests.boxes import read_loss_request
from lensbox.serve.settings import Settings

_PREDICTIONS = [[10, 10, 30.5, 31], [40, 5.25, 60, 25], [0, 0, 8, 8], [3, 4, 9, 9]]
_TARGETS = [[12, 9, 33, 30], [42, 8, 58, 30], [20, 20, 28, 30], [0, 0, 0, 0]]
_RAGGED: list[Any] = [_PREDICTIONS[:3], _PREDICTIONS[:1], _PREDICTIONS]
_RAGGED_TARGETS: list[Any] = [_TARGETS[:2], [], _TARGETS[1:]]


def _tensor(boxes: list[Any]) -> torch.Tensor:
    return torch.tensor(boxes, dtype=torch.float64)


@pytest.mark.parametrize("batched", [False, True])
def test_returns_the_loss_of_the_artifact_for_any_content_type(
    client: httpx.Client, artifact: Artifact, batched: bool
) -> None:
    predictions: list[Any] = [_PREDICTIONS, _TARGETS] if batched else _PREDICTIONS
    targets: list[Any] = [_TARGETS, _TARGETS] if batched else _TARGETS
    body = json.dumps({"predictions": predictions, "targets": targets}).encode()
    expected = artifact.loss(_tensor(predictions), _tensor(targets))
    assert 0 < expected < 2
    for kind in (None, "", "application/json", "text/plain", "multipart/form-data"):
        headers = {} if kind is None else {"Content-Type": kind}
        response = client.post("/v1/loss", content=body, headers=headers)
        assert response.status_code == 200
        # The fourth target has y2 = 0: padding.
        assert response.json() == {"loss": expected, "slots": 6 if batched else 3}


@pytest.mark.parametrize(
    ("predictions", "targets", "weights"),
    [
        (_PREDICTIONS, _TARGETS, [1, 2, 0.5, 9]),
        (_RAGGED, _RAGGED_TARGETS, None),
        (_RAGGED, _RAGGED_TARGETS, [0.5, 3, 2]),
        (_RAGGED, _RAGGED_TARGETS, [[0.25, 3], [], [2, 0.5, 0]]),
    ],
)
def test_every_option(
    client: httpx.Client, artifact: Artifact, predictions: list[Any], targets: list[Any], weights: Any
) -> None:
    """`tests/runtime/test_box_loss.py` compares the numbers with the definition in float64."""
    question = {"predictions": predictions, "targets": targets, "per_image": True, "gradient": True}
    body = json.dumps({**question, **({"weights": weights} if weights else {})}).encode()
    answer = client.post("/v1/loss", content=body).json()
    expected = artifact.losses(read_loss_request(body, 100).pairs, per_image=True, gradient=True)
    assert list(answer) == ["loss", "slots", "per_image", "gradient"]
    assert (answer["loss"], answer["per_image"]) == (expected.loss, expected.per_image)
    gradient = answer["gradient"]
    if predictions is _RAGGED:
        assert answer["slots"] == 4
        assert [len(image) for image in gradient] == [3, 1, 4]
        gradient = [row for image in gradient for row in image]
    assert expected.gradient is not None
    assert gradient == expected.gradient.tolist()


class Distance(Brightest):
    """A detector with its own loss."""

    def loss(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 3 * ((predictions - targets) ** 2).mean()


def test_rejects_what_the_detectors_own_loss_does_not_take(start_service: Start, tmp_path: Path) -> None:
    detector: Any = Distance()
    save_artifact(detector, tmp_path / "detector.pt")
    settings = Settings(artifact=tmp_path / "detector.pt", device="cpu", threads=1)
    client = start_service(lambda: load_model(settings), max_boxes=20).ready().client
    question: dict[str, Any] = {"predictions": _PREDICTIONS, "targets": _TARGETS}
    refused = client.post("/v1/loss", json={**question, "weights": [1] * 4})
    assert refused.status_code == 422
    assert problem_of(refused) == {
        "code": "unsupported_loss",
        "message": "weights must be left out: the detector has its own loss, which takes no weights",
    }
    images: list[Any] = [_PREDICTIONS, *[[]] * 5]
    refused = client.post("/v1/loss", json={"predictions": images, "targets": images})
    assert refused.status_code == 422
    assert problem_of(refused)["message"].endswith("got 24")  # padded


def test_the_largest_finite_numbers_give_a_finite_loss(client: httpx.Client) -> None:
    largest = torch.finfo(torch.float64).max
    box, target = [-largest, -largest, largest, largest], [largest, -largest, -largest, largest]
    response = client.post("/v1/loss", json={"predictions": [box], "targets": [target]})
    assert response.status_code == 200
    assert 0 <= response.json()["loss"] <= 2


@pytest.mark.parametrize(
    ("body", "status", "code"), [(b"", 400, "empty_body"), (b" " * ((1 << 20) + 1), 413, "body_too_large")]
)
def test_bad_bodies(client: httpx.Client, body: bytes, status: int, code: str) -> None:
    response = client.post("/v1/loss", content=body)
    assert response.status_code == status
    assert problem_of(response)["code"] == code
    assert client.get("/readyz").status_code == 200


def test_rejects_loss_requests_for_a_model_without_loss(
    start: Start, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake.metadata, "methods", ("preprocess", "detect", "restore"))
    response = start().client.post("/v1/loss", json={"predictions": _PREDICTIONS, "targets": _TARGETS})
    assert response.status_code == 422
    assert problem_of(response)["code"] == "no_loss"
    assert fake.calls == []
