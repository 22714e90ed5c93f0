"""One detector, four ways to run it: eager Python, TorchScript, the C++ runner and HTTP answer alike.

On the CPU and on a GPU, compared with eager Python on the CPU, with the shipped weights and the demo's
photographs.
"""

from pathlib import Path

import httpx
import PIL.Image
import pytest
import torch
from runner_answers import Document, answer, numbers
from serve_process import running_service
from waiting import PATIENCE

from lensbox.cli.samples import save_photos
from lensbox.model import load_detector
from lensbox.ops.canvas import fit_to_canvases, restore_boxes
from lensbox.runtime import Detections
from lensbox.runtime.images.files import read_image
from lensbox.runtime.loading import load_artifact

THRESHOLDS = {"score_threshold": 0.1, "iou_threshold": 0.5}  # more than the one clear face is compared
# Pixels and scores by which an answer may differ from eager Python's on the CPU. A GPU sums in another order,
# and TorchScript fuses operators there once it has warmed up, also where it resizes the photograph: some
# pixels of the canvas then round to the next gray level. On an H200 that moved boxes by up to 0.09 px and
# scores by up to 8e-4.
ALLOWED = {"cpu": (0.01, 1e-4), "cuda": (0.2, 2e-3)}


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


def from_json(image: Document) -> Detections:
    return Detections(numbers(image, "box"), numbers(image, "score"))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_same_boxes_everywhere(device: str, shipped_path: Path, tmp_path: Path) -> None:
    photos = []
    for path in save_photos(tmp_path):
        photos.append(tmp_path / f"{path.stem}_decoded.png")
        PIL.Image.open(path).save(photos[-1])
    detector, artifact = load_detector().eval(), load_artifact(shipped_path, device)
    options = ["--score-threshold", 0.1, "--iou-threshold", 0.5, "--device", device]
    by_runner = answer("detect", "--artifact", shipped_path, "--image", *photos, *options)["images"]
    with (
        running_service(shipped_path, "--device", device) as url,
        httpx.Client(base_url=url, timeout=PATIENCE) as client,
    ):
        for photo, by_cpp in zip(photos, by_runner, strict=True):
            canvases, geometry = fit_to_canvases([read_image(photo)], None, 256, 256, 1, 0)
            boxes, scores, counts = detector.detect(canvases, **THRESHOLDS)
            count = int(counts[0])
            expected = Detections(restore_boxes(boxes, geometry)[0, :count], scores[0, :count])
            assert expected.scores[0] > 0.5
            by_http = client.post("/v1/detect", params=THRESHOLDS, content=photo.read_bytes()).json()
            by_python = artifact.detect_image(photo, 0.1, 0.5)
            for found in (by_python, from_json(by_cpp), from_json(by_http)):
                assert_same(found, expected, device)
