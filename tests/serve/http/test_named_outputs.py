"""POST /v1/detect of detectors with classes and further outputs, and what the interface says of them."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from torch import nn
from user_detectors import Landmarks, RedAndBlue

from lensbox.export.pipeline import save_artifact
from lensbox.runtime import load_artifact


@pytest.fixture(scope="module")
def photograph() -> bytes:
    """A PNG of 160 x 96 pixels: a red square at (10, 20), a blue one at (120, 60)."""
    pixels = np.full((96, 160, 3), 110, np.uint8)
    pixels[20:32, 10:22] = (250, 10, 10)
    pixels[60:72, 120:132] = (10, 10, 240)
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def answer(
    start_service: Callable[..., Any], wait_until: Callable[..., None], path: Path, body: bytes, **query: Any
) -> Any:
    client = start_service(lambda: load_artifact(path)).client
    wait_until(lambda: client.get("/readyz").status_code == 200)
    response = client.post("/v1/detect", content=body, params=query)
    assert response.status_code == 200
    return response.json()


def save(detector: nn.Module, folder: Path) -> Path:
    save_artifact(detector, folder / "detector.pt")  # type: ignore[arg-type]  # (checked by save_artifact)
    return folder / "detector.pt"


def test_labels_by_name(
    start_service: Callable[..., Any], wait_until: Callable[..., None], photograph: bytes, tmp_path: Path
) -> None:
    path = save(RedAndBlue(), tmp_path)
    found = answer(start_service, wait_until, path, photograph, score_threshold=0.4, iou_threshold=0.1)
    assert (found["width"], found["height"]) == (160, 96)
    assert [list(detection) for detection in found["detections"]] == [["box", "score", "label"]] * 2
    boxes = {detection["label"]: detection["box"] for detection in found["detections"]}
    assert boxes["red"] == pytest.approx([10, 20, 22, 32], abs=1)
    assert boxes["blue"] == pytest.approx([120, 60, 132, 72], abs=1)


def test_further_outputs_nested(
    start_service: Callable[..., Any], wait_until: Callable[..., None], photograph: bytes, tmp_path: Path
) -> None:
    path = save(Landmarks(), tmp_path)
    found = answer(start_service, wait_until, path, photograph)["detections"]
    artifact = load_artifact(path)
    expected = artifact.detect_image(artifact.read_photo(photograph))
    assert len(found) == len(expected.boxes) > 0
    for name in ("corners", "embedding", "cell"):
        numbers = torch.tensor([detection["extras"][name] for detection in found])
        assert torch.equal(numbers, expected.extras[name])
    assert "label" not in found[0]


def test_the_interface_describes_labels_and_extras(start_service: Callable[..., Any], fake: Any) -> None:
    document = start_service(lambda: fake).client.get("/openapi.json").json()
    detection = document["components"]["schemas"]["Detection"]
    assert list(detection["properties"]) == ["box", "score", "label", "extras"]
    assert detection["required"] == ["box", "score"]
    answer = document["paths"]["/v1/detect"]["post"]["responses"]["200"]["content"]["application/json"]
    one, many = answer["schema"]["anyOf"]
    assert one["$ref"].endswith("/DetectAnswer")
    assert many["$ref"].endswith("/ManyAnswers")
    assert "face" not in str(document).lower()
