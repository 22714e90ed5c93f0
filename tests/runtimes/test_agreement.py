"""One detector, four ways to run it: eager Python, TorchScript, the C++ runner and HTTP answer alike.

On the CPU and on a GPU, compared with eager Python on the CPU, with the shipped weights and the demo's
photographs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import PIL.Image
import pytest
import runner_answers
import torch
from serve_process import running_service
from torch import Tensor
from waiting import PATIENCE

from lensbox.cli.samples import DRAWN_BOXES, save_photos
from lensbox.model import FaceDetector, load_detector
from lensbox.ops.canvas import fit_to_canvases, restore_boxes
from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.images.files import read_image
from lensbox.runtime.loading import load_artifact

PHOTOS = [name.split(".")[0] for name in DRAWN_BOXES]
# Low enough that more than the one clear face is compared.
SCORE_THRESHOLD = 0.1
IOU_THRESHOLD = 0.5


@dataclass(frozen=True)
class Tolerance:
    """The largest allowed difference between an answer and eager Python's on the CPU.

    in_order: the answer must have as many boxes, in the same order. Otherwise each box must have a
        counterpart, except boxes so close to the threshold that rounding may drop the counterpart.
    """

    pixels: float
    scores: float
    in_order: bool = True


TOLERANCES = {
    "cpu": Tolerance(pixels=0.01, scores=1e-4),
    # A GPU sums in another order, and TorchScript fuses operators there once it has warmed up, also where it
    # resizes the photograph: some pixels of the canvas then round to the next gray level. On an H200 that
    # moved boxes by up to 0.09 px and scores by up to 8e-4.
    "cuda": Tolerance(pixels=0.2, scores=2e-3, in_order=False),
}


@dataclass(frozen=True)
class Answer:
    boxes: Tensor  # [n, 4], pixels of the photograph
    scores: Tensor  # [n]


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
    path: Path  # for the runner
    http: httpx.Client


@pytest.fixture(scope="module")
def runtimes(device: str, shipped_path: Path) -> Iterator[Runtimes]:
    with (
        running_service(shipped_path, "--device", device) as url,
        httpx.Client(base_url=url, timeout=PATIENCE) as client,
    ):
        yield Runtimes(load_detector().eval(), load_artifact(shipped_path, device), shipped_path, client)


def ask_eager(detector: FaceDetector, photo: Path) -> Answer:
    canvases, geometry = fit_to_canvases([read_image(photo)], None, 256, 256, 1, 0)
    boxes, scores, counts = detector.detect(canvases, SCORE_THRESHOLD, IOU_THRESHOLD)
    count = int(counts[0])
    return Answer(restore_boxes(boxes, geometry)[0, :count], scores[0, :count])


def ask_torchscript(artifact: Artifact, photo: Path) -> Answer:
    found = artifact.detect_image(artifact.read_photo(photo), SCORE_THRESHOLD, IOU_THRESHOLD)
    return Answer(found.boxes, found.scores)


def ask_runner(artifact: Path, photo: Path, device: str) -> Answer:
    thresholds = ("--score-threshold", SCORE_THRESHOLD, "--iou-threshold", IOU_THRESHOLD)
    asked = ("--artifact", artifact, "--image", photo, "--device", device)
    (image,) = runner_answers.answer("detect", *asked, *thresholds)["images"]
    return from_json(image["detections"])


def ask_http(client: httpx.Client, photo: Path) -> Answer:
    query = {"score_threshold": SCORE_THRESHOLD, "iou_threshold": IOU_THRESHOLD}
    response = client.post("/v1/detect", params=query, content=photo.read_bytes())
    assert response.status_code == 200, response.text
    return from_json(response.json()["detections"])


def from_json(detections: list[dict[str, Any]]) -> Answer:
    boxes = torch.tensor([d["box"] for d in detections]).reshape(-1, 4)
    return Answer(boxes, torch.tensor([d["score"] for d in detections]))


def assert_same(answer: Answer, expected: Answer, within: Tolerance) -> None:
    if within.in_order:
        assert len(answer.boxes) == len(expected.boxes)
        assert (answer.boxes - expected.boxes).abs().max() <= within.pixels
        assert (answer.scores - expected.scores).abs().max() <= within.scores
        return
    for one, other in ((answer, expected), (expected, answer)):
        clear = one.scores >= SCORE_THRESHOLD + within.scores
        distances = (one.boxes[clear, None] - other.boxes).abs().amax(-1)
        nearest = distances.min(1)
        assert nearest.values.max() <= within.pixels
        assert (one.scores[clear] - other.scores[nearest.indices]).abs().max() <= within.scores


@pytest.mark.parametrize("name", PHOTOS)
def test_the_same_boxes_everywhere(
    name: str, device: str, photos: dict[str, Path], runtimes: Runtimes
) -> None:
    photo = photos[name]
    expected = ask_eager(runtimes.eager, photo)
    assert expected.scores[0] > 0.5
    for answer in (
        ask_torchscript(runtimes.torchscript, photo),
        ask_runner(runtimes.path, photo, device),
        ask_http(runtimes.http, photo),
    ):
        assert_same(answer, expected, TOLERANCES[device])
