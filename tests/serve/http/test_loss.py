"""POST /v1/loss over a real artifact."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from services import Start, client_of, problem_of
from small_detectors import Brightest

from lensbox.export.pipeline import save_artifact
from lensbox.runtime.detect.artifact import Artifact

_PREDICTIONS = [[10, 10, 30.5, 31], [40, 5.25, 60, 25], [0, 0, 8, 8], [3, 4, 9, 9]]
_TARGETS = [[12, 9, 33, 30], [42, 8, 58, 30], [20, 0.25, 28, 0.75], [0, 0, 0, 0]]


def _tensor(boxes: list[Any]) -> torch.Tensor:
    return torch.tensor(boxes, dtype=torch.float64)


def test_returns_the_loss_of_the_artifact(client: httpx.Client, artifact: Artifact) -> None:
    expected, gradient = artifact.loss_and_gradient(_tensor(_PREDICTIONS), _tensor(_TARGETS))
    assert 0 < expected < 2
    assert gradient is not None
    question: dict[str, Any] = {"predictions": _PREDICTIONS, "targets": _TARGETS}
    for kind in ("", "application/json", "multipart/form-data"):  # any content type
        response = client.post("/v1/loss", content=json.dumps(question), headers={"Content-Type": kind})
        assert response.json() == {"loss": expected, "slots": 3}  # the fourth target has y2 = 0
    answer = client.post("/v1/loss", json={**question, "gradient": True}).json()
    torch.testing.assert_close(_tensor(answer["gradient"]), gradient)
    largest = torch.finfo(torch.float64).max
    box, target = [-largest, -largest, largest, largest], [largest, -largest, -largest, largest]
    answer = client.post("/v1/loss", json={"predictions": [box], "targets": [target]}).json()
    assert 0 <= answer["loss"] <= 2


def test_images_may_have_any_number_of_boxes(client: httpx.Client, artifact: Artifact) -> None:
    images: list[Any] = [_PREDICTIONS[:3], [], _PREDICTIONS[:1], _PREDICTIONS]
    targets: list[Any] = [_TARGETS[:2], [], [], _TARGETS]
    question = {"predictions": images, "targets": targets, "gradient": True}
    answer = client.post("/v1/loss", json=question).json()
    pairs = [*zip(_PREDICTIONS[:2], _TARGETS[:2], strict=True), *zip(_PREDICTIONS, _TARGETS, strict=True)]
    alone = [_tensor(list(boxes)) for boxes in zip(*pairs, strict=True)]
    loss, gradient = artifact.loss_and_gradient(*alone)
    assert gradient is not None
    assert (answer["loss"], answer["slots"]) == (pytest.approx(loss), 5)
    assert [len(image) for image in answer["gradient"]] == [3, 0, 1, 4]
    first, _, third, last = answer["gradient"]
    assert [first[2], third[0]] == [[0, 0, 0, 0]] * 2  # predictions without a target
    torch.testing.assert_close(_tensor([*first[:2], *last]), gradient)
    most = {"predictions": [_PREDICTIONS[:1]] * 100, "targets": [[]] * 100}
    assert client.post("/v1/loss", json=most).json() == {"loss": 0, "slots": 0}


class Mismatches(Brightest):
    """A detector with its own loss, a mean of means without a gradient."""

    def loss(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (predictions != targets).to(predictions.dtype).mean()


def test_a_detector_s_own_loss_gets_padded_images(tmp_path: Path) -> None:
    save_artifact(Mismatches(), tmp_path / "detector.pt")
    images = {"predictions": [[[1, 2, 3, 4]] * 3, [[1, 2, 3, 4]]], "targets": [[[1, 2, 3, 9]], []]}
    with client_of(tmp_path / "detector.pt") as client:
        assert client.post("/v1/loss", json=images).json() == {"loss": (1 + 4 + 4 + 4) / 24, "slots": 1}
        refused = client.post("/v1/loss", json={**images, "gradient": True})
    message = "gradient must be left out: the detector's own loss has no gradient"
    assert problem_of(refused) == (422, "unsupported_loss", message)


def test_rejects_loss_requests_for_a_model_without_loss(
    start: Start, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake.metadata, "methods", ("preprocess", "detect", "restore"))
    response = start().client.post("/v1/loss", json={"predictions": _PREDICTIONS, "targets": _TARGETS})
    assert problem_of(response)[:2] == (422, "no_loss")
    assert fake.calls == []
