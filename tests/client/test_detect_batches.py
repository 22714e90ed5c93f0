"""`lensbox detect --url` with many files: fewer requests, the same answers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_up_service import made_up_service

from lensbox.common.main import main

NOTHING = {"width": 4, "height": 3, "detections": []}
LIMITS = dict.fromkeys(("max_body_bytes", "max_json_bytes", "max_pixels", "max_boxes"), 1 << 24)
MODEL = {
    "name": "made_up",
    "defaults": {"score_threshold": 0.5, "iou_threshold": 0.5},
    "service": {"version": "1", "torch": "2", "device": "cpu", "limits": {**LIMITS, "max_images": 32}},
}

Detect = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def detect(photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Detect:
    """Runs the command in the folder of the photographs, and gives its lines."""
    monkeypatch.chdir(photos)

    def detect(*arguments: str) -> list[dict[str, Any]]:
        assert main(["detect", *arguments, "--format", "jsonl"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return detect


@pytest.mark.parametrize(("options", "most"), [((), 8), (("--batch", "3"), 3), (("--batch", "1"), 1)])
def test_a_request_has_several_files(detect: Detect, options: tuple[str, ...], most: int) -> None:
    sizes: list[int] = []

    def answer(path: str, body: bytes) -> tuple[int, Any]:
        if path == "/v1/model":
            return 200, MODEL
        sizes.append(max(1, body.count(b'name="image"')))
        return 200, NOTHING if sizes[-1] == 1 else {"images": [NOTHING] * sizes[-1]}

    with made_up_service(answer) as service:
        files = ["b.jpg", "a.PNG"] * 40
        found = detect(*files, "--url", service.url, "--connections", "1", *options)
    assert [entry["file"] for entry in found] == files
    assert max(sizes) == most
    assert sum(sizes) == len(files)


def test_batches_find_what_the_artifact_finds(detect: Detect, url: str, artifact_path: Path) -> None:
    files = ["b.jpg", "a.PNG", "turned.jpg", "below/c.webp"] * 6
    own = detect(*files, "--artifact", str(artifact_path), "--batch", "1")
    asked = detect(*files, "--url", url)
    assert [entry["file"] for entry in asked] == files
    for one, other in zip(asked, own, strict=True):
        assert (one["width"], one["height"]) == (other["width"], other["height"])
        scores = [found["score"] for found in other["detections"]]
        assert [found["score"] for found in one["detections"]] == pytest.approx(scores, abs=1e-5)
