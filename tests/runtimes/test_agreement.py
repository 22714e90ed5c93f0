"""One detector, four ways to run it: eager Python, TorchScript, the C++ runner and HTTP answer alike.

On the CPU and on a GPU, compared with eager Python on the CPU, with the shipped weights and the demo's
photographs.
"""

from pathlib import Path

import httpx
import PIL.Image
import pytest
from runner_answers import answer
from serve_process import running_service
from waiting import PATIENCE

from lensbox.cli.samples import save_photos
from lensbox.model import load_detector
from lensbox.ops.canvas import fit_to_canvases, restore_boxes
from lensbox.runtime import load_artifact, read_image
from lensbox.runtime.detect.detection import detections_in, detections_of_json
from lensbox.runtime.detect.self_test import Difference
from lensbox.runtime.file.self_test import Tolerance

THRESHOLDS = {"score_threshold": 0.1, "iou_threshold": 0.5}  # more than the one clear face is compared
# Pixels, scores and IoU by which an answer may differ from eager Python's on the CPU. A GPU sums in another
# order, and TorchScript fuses operators there once it has warmed up, also where it resizes the photograph:
# some pixels of the canvas then round to the next gray level. On an H200 that moved boxes by up to 0.09 px
# and scores by up to 8e-4.
TOLERANCES = {"cpu": Tolerance(0.01, 1e-4, 0, iou=1e-3), "cuda": Tolerance(0.2, 2e-3, 0, iou=0.02)}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_same_boxes_everywhere(device: str, shipped_path: Path, tmp_path: Path) -> None:
    photos = []
    for path in save_photos(tmp_path):
        photos.append(tmp_path / f"{path.stem}_decoded.png")
        PIL.Image.open(path).save(photos[-1])
    detector, artifact = load_detector().eval(), load_artifact(shipped_path, device)
    options = ["--score-threshold", 0.1, "--iou-threshold", 0.5, "--device", device]
    by_runner = answer("detect", "--artifact", shipped_path, "--image", *photos, *options)["images"]
    difference = Difference()
    with (
        running_service(shipped_path, "--device", device) as url,
        httpx.Client(base_url=url, timeout=PATIENCE) as client,
    ):
        for photo, by_cpp in zip(photos, by_runner, strict=True):
            canvases, geometry = fit_to_canvases([read_image(photo)], None, 256, 256, 1, 0)
            eager = detector.detect(canvases, **THRESHOLDS)
            expected = detections_in({**eager, "boxes": restore_boxes(eager["boxes"], geometry)})
            assert expected.scores[0] > 0.5
            by_http = client.post("/v1/detect", params=THRESHOLDS, content=photo.read_bytes()).json()
            by_python = artifact.detect_image(photo, 0.1, 0.5).to_json()
            for found in map(detections_of_json, (by_python, by_cpp, by_http)):
                difference.add(expected, found, (0.1, 0.5), TOLERANCES[device], photo.name)
    assert difference.unexplained == []
    assert difference.by_rounding == 0 or device == "cuda"
