"""One detector, four ways to run it: eager Python, TorchScript, the C++ runner and HTTP answer alike.

On the CPU and on a GPU, compared with eager Python on the CPU, with the shipped weights and the demo's
photographs.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import PIL.Image
import pytest
import runner_answers
import torch
from serve_process import running_service
from waiting import PATIENCE

from lensbox.cli.samples import DRAWN_BOXES, save_photos
from lensbox.model import FaceDetector, load_detector
from lensbox.ops.canvas import fit_to_canvases, restore_boxes
from lensbox.runtime import Artifact, Detections
from lensbox.runtime.images.files import read_image
from lensbox.runtime.loading import load_artifact

PHOTOS = [name.split(".")[0] for name in DRAWN_BOXES]
THRESHOLDS = {"score_threshold": 0.1, "iou_threshold": 0.5}  # more than the one clear face is compared
# Pixels and scores by which an answer may differ from eager Python's on the CPU. A GPU sums in another order,
# and TorchScript fuses operators there once it has warmed up, also where it resizes the photograph: some
# pixels of the canvas then round to the next gray level. On an H200 that moved boxes by up to 0.09 px and
# scores by up to 8e-4.
ALLOWED = {"cpu": (0.01, 1e-4), "cuda": (0.2, 2e-3)}


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Return the device of every runtime except the reference."""
    return str(request.param)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the photographs of the demo as PNG files, by name."""
    folder = tmp_path_factory.mktemp("photos")
    for path in save_photos(folder):
        PIL.Image.open(path).save(folder / f"{path.stem}.png")
    return {name: folder / f"{name}.png" for name in PHOTOS}


class Runtimes(NamedTuple):
    """One detector on a device, in each runtime; eager Python is on the CPU."""

    eager: FaceDetector
    torchscript: Artifact
    http: httpx.Client


@pytest.fixture(scope="module")
def runtimes(device: str, shipped_path: Path) -> Iterator[Runtimes]:
    with (
        running_service(shipped_path, "--device", device) as url,
        httpx.Client(base_url=url, timeout=PATIENCE) as client,
    ):
        yield Runtimes(load_detector().eval(), load_artifact(shipped_path, device), client)


def ask_eager(detector: FaceDetector, photo: Path) -> Detections:
    canvases, geometry = fit_to_canvases([read_image(photo)], None, 256, 256, 1, 0)
    boxes, scores, counts = detector.detect(canvases, **THRESHOLDS)
    count = int(counts[0])
    return Detections(restore_boxes(boxes, geometry)[0, :count], scores[0, :count])


def ask_runner(artifact: Path, photo: Path, device: str) -> Detections:
    thresholds = ("--score-threshold", 0.1, "--iou-threshold", 0.5)
    asked = ("--artifact", artifact, "--image", photo, "--device", device)
    (image,) = runner_answers.answer("detect", *asked, *thresholds)["images"]
    return from_json(image)


def ask_http(client: httpx.Client, photo: Path) -> Detections:
    response = client.post("/v1/detect", params=THRESHOLDS, content=photo.read_bytes())
    assert response.status_code == 200, response.text
    return from_json(response.json())


def from_json(image: dict[str, Any]) -> Detections:
    return Detections(runner_answers.numbers(image, "box"), runner_answers.numbers(image, "score"))


def assert_same(answer: Detections, expected: Detections, device: str) -> None:
    """Compare in order on a CPU. On a GPU each box needs a counterpart, except boxes near the threshold."""
    pixels, scores = ALLOWED[device]
    if device == "cpu":
        torch.testing.assert_close(answer.boxes, expected.boxes, rtol=0, atol=pixels)
        torch.testing.assert_close(answer.scores, expected.scores, rtol=0, atol=scores)
        return
    for one, other in ((answer, expected), (expected, answer)):
        clear = one.scores >= THRESHOLDS["score_threshold"] + scores
        distances = (one.boxes[clear, None] - other.boxes).abs().amax(-1)
        nearest = distances.min(1)
        assert nearest.values.max() <= pixels
        assert (one.scores[clear] - other.scores[nearest.indices]).abs().max() <= scores


@pytest.mark.parametrize("name", PHOTOS)
def test_the_same_boxes_everywhere(
    name: str, device: str, photos: dict[str, Path], runtimes: Runtimes, shipped_path: Path
) -> None:
    photo = photos[name]
    expected = ask_eager(runtimes.eager, photo)
    assert expected.scores[0] > 0.5
    for answer in (
        runtimes.torchscript.detect_image(photo, 0.1, 0.5),
        ask_runner(shipped_path, photo, device),
        ask_http(runtimes.http, photo),
    ):
        assert_same(answer, expected, device)
