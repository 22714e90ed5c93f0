"""POST /v1/loss over a real artifact."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from box_reference import loss_reference
from problems import problem_of
from services import Start
from user_detectors import Brightest

from lensbox.export.pipeline import save_artifact
from lensbox.runtime.artifact import Artifact
from lensbox.serve.loading import load_model
from lensbox.serve.settings import Settings

_PREDICTIONS = [[10, 10, 30.5, 31], [40, 5.25, 60, 25], [0, 0, 8, 8], [3, 4, 9, 9]]
_TARGETS = [[12, 9, 33, 30], [42, 8, 58, 30], [20, 20, 28, 30], [0, 0, 0, 0]]


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


def _padded(images: list[Any], slots: int) -> torch.Tensor:
    return _tensor([[*boxes, *[[0, 0, 0, 0]] * (slots - len(boxes))] for boxes in images])


@pytest.mark.parametrize("weights", [None, [0.5, 3, 2], [[0.25, 3], [], [2, 0.5, 0]]])
def test_ragged_boxes_support_every_option(client: httpx.Client, weights: list[Any] | None) -> None:
    """Against the definition in float64, over padded boxes."""
    predictions = [_PREDICTIONS[:3], _PREDICTIONS[:1], _PREDICTIONS]
    targets = [_TARGETS[:2], [], _TARGETS[1:]]
    question = {"predictions": predictions, "targets": targets, "per_image": True, "gradient": True}
    response = client.post("/v1/loss", json={**question, **({"weights": weights} if weights else {})})
    assert response.status_code == 200
    answer = response.json()
    assert list(answer) == ["loss", "slots", "per_image", "gradient"]
    assert answer["slots"] == 4

    boxes, wanted = _padded(predictions, 4).requires_grad_(), _padded(targets, 4)
    weight = (wanted[..., 3] != 0).double()
    if weights == [0.5, 3, 2]:
        weight = weight * _tensor(weights)[:, None]
    elif weights is not None:
        weight = weight * _tensor([[*image, *[0.0] * (4 - len(image))] for image in weights])
    expected = loss_reference(boxes, wanted, weight)
    (gradient,) = torch.autograd.grad(expected, boxes)
    alone = [float(loss_reference(*image)) for image in zip(boxes.detach(), wanted, weight, strict=True)]
    assert answer["loss"] == pytest.approx(float(expected.detach()), rel=1e-12)
    assert answer["per_image"] == pytest.approx(alone, rel=1e-12)
    assert alone[1] == 0
    assert [len(image) for image in answer["gradient"]] == [3, 1, 4]
    torch.testing.assert_close(_padded(answer["gradient"], 4), gradient, rtol=1e-9, atol=1e-12)
    assert gradient.abs().max() > 1e-3


def test_flat_boxes_support_every_option(client: httpx.Client) -> None:
    question = {"predictions": _PREDICTIONS, "targets": _TARGETS, "weights": [1, 2, 0.5, 9]}
    answer = client.post("/v1/loss", json={**question, "per_image": True, "gradient": True}).json()
    expected = loss_reference(_tensor(_PREDICTIONS), _tensor(_TARGETS), _tensor([1, 2, 0.5, 0]))
    assert answer["per_image"] == [answer["loss"]] == [pytest.approx(float(expected), rel=1e-12)]
    assert len(answer["gradient"]) == 4
    assert answer["gradient"][3] == [0, 0, 0, 0]  # of padding
    boxes = _tensor(_PREDICTIONS)
    boxes[1, 2] += 1e-6
    shifted = client.post("/v1/loss", json={**question, "predictions": boxes.tolist()}).json()["loss"]
    assert (shifted - answer["loss"]) / 1e-6 == pytest.approx(answer["gradient"][1][2], abs=1e-6)


class Distance(Brightest):
    """A detector with its own loss, which has a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(3.0))

    def loss(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self.factor * ((predictions - targets) ** 2).mean()


def test_uses_the_detectors_own_loss(start_service: Start, tmp_path: Path) -> None:
    detector: Any = Distance()
    save_artifact(detector, tmp_path / "detector.pt")
    settings = Settings(artifact=tmp_path / "detector.pt", device="cpu", threads=1)
    client = start_service(lambda: load_model(settings), max_boxes=20).ready().client
    question: dict[str, Any] = {"predictions": _PREDICTIONS, "targets": _TARGETS}
    answer = client.post("/v1/loss", json={**question, "gradient": True}).json()
    difference = _tensor(_PREDICTIONS) - _tensor(_TARGETS)
    assert answer["loss"] == pytest.approx(float(3 * (difference**2).mean()))
    torch.testing.assert_close(_tensor(answer["gradient"]), 6 * difference / 16)
    ragged = {"predictions": [_PREDICTIONS, []], "targets": [_TARGETS, []]}
    answer = client.post("/v1/loss", json=ragged).json()
    assert answer["loss"] == pytest.approx(float(3 * (difference**2).mean() / 2))  # padded

    refused = client.post("/v1/loss", json={**question, "weights": [1] * 4})
    assert refused.status_code == 422
    assert problem_of(refused) == {
        "code": "unsupported_loss",
        "message": "weights must be left out: the detector has its own loss, which takes no weights",
    }
    images: list[Any] = [_PREDICTIONS, *[[]] * 5]
    refused = client.post("/v1/loss", json={"predictions": images, "targets": images})
    assert refused.status_code == 422
    assert problem_of(refused)["message"].endswith("got 24")


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
        (b'{"predictions": [[0, 0, 1]], "targets": [[0, 0, 1, 1]]}', 422, "invalid_boxes"),
        (b" " * ((1 << 20) + 1), 413, "body_too_large"),
        (
            json.dumps(dict.fromkeys(("predictions", "targets"), [[0] * 4] * 101)).encode(),
            413,
            "too_many_boxes",
        ),
    ],
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
