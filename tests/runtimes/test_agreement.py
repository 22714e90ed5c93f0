"""One detector, four ways to run it: eager Python, TorchScript, the C++ runner and HTTP answer alike.

Runs on the shipped weights and on the demo's two photographs, as PNG, which is decoded alike everywhere;
JPEG decoders differ by some gray levels (test_jpeg says how much that matters).
"""

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import PIL.Image
import pytest
import torch
from serve_process import PATIENCE, ServeProcess
from torch import Tensor

from lensbox.cpp_runtime.demo import REPOSITORY
from lensbox.export.artifact import Artifact, load_artifact, save_artifact
from lensbox.export.images import read_image
from lensbox.export.sample_photos import DRAWN_BOXES, save_photos
from lensbox.model import FaceDetector, load_detector
from lensbox.ops import library_path

RUNNER = REPOSITORY / "build" / "runner" / "lensbox_runner"
PHOTOS = [name.split(".")[0] for name in DRAWN_BOXES]
# Low enough that more than the one clear face is compared.
SCORE_THRESHOLD = 0.1
IOU_THRESHOLD = 0.5


@dataclass(frozen=True)
class Answer:
    boxes: Tensor  # [n, 4], pixels of the photograph
    scores: Tensor  # [n]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The photographs as their packages ship them, one JPEG and one PNG, and each as PNG, by file name."""
    folder = tmp_path_factory.mktemp("photos")
    originals = save_photos(folder)
    for path in originals:
        PIL.Image.open(path).save(folder / f"{path.stem}.png")
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def detector() -> FaceDetector:
    return load_detector().eval()


@pytest.fixture(scope="module")
def artifact_path(detector: FaceDetector, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "detector.pt"
    save_artifact(detector, path)
    return path


@pytest.fixture(scope="module")
def artifact(artifact_path: Path) -> Artifact:
    return load_artifact(artifact_path)


@pytest.fixture(scope="module")
def client(artifact_path: Path) -> Iterator[httpx.Client]:
    process = ServeProcess(artifact_path)
    try:
        deadline = time.monotonic() + PATIENCE
        while (url := process.url()) is None:
            assert time.monotonic() < deadline, process.log
            time.sleep(0.05)
        with httpx.Client(base_url=url, timeout=PATIENCE) as client:
            while client.get("/readyz").status_code != 200:
                assert time.monotonic() < deadline, process.log
                time.sleep(0.05)
            yield client
    finally:
        process.close()


def ask_eager(detector: FaceDetector, photo: Path, device: str = "cpu") -> Answer:
    canvas, geometry = detector.preprocess(read_image(photo).to(device))
    boxes, scores, counts = detector.detect(canvas[None], SCORE_THRESHOLD, IOU_THRESHOLD)
    count = int(counts[0])
    return Answer(detector.restore(boxes[0, :count], geometry).cpu(), scores[0, :count].cpu())


def ask_torchscript(artifact: Artifact, photo: Path) -> Answer:
    found = artifact.detect_image(read_image(photo), SCORE_THRESHOLD, IOU_THRESHOLD)
    return Answer(found.boxes, found.scores)


def run_runner(artifact: Path, command: str, *arguments: str) -> dict:
    line = [str(RUNNER), command, "--artifact", str(artifact), "--ops", str(library_path()), *arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ask_runner(artifact: Path, photo: Path, device: str = "cpu") -> Answer:
    thresholds = ("--score-threshold", str(SCORE_THRESHOLD), "--iou-threshold", str(IOU_THRESHOLD))
    out = run_runner(artifact, "detect", "--image", str(photo), "--device", device, *thresholds)
    return from_json(out["images"][0]["detections"])


def ask_http(client: httpx.Client, photo: Path) -> Answer:
    query = {"score_threshold": SCORE_THRESHOLD, "iou_threshold": IOU_THRESHOLD}
    response = client.post("/v1/detect", params=query, content=photo.read_bytes())
    assert response.status_code == 200, response.text
    return from_json(response.json()["detections"])


def from_json(detections: list[dict]) -> Answer:
    boxes = torch.tensor([d["box"] for d in detections]).reshape(-1, 4)
    return Answer(boxes, torch.tensor([d["score"] for d in detections]))


def assert_same(answer: Answer, expected: Answer, pixels: float, score: float = 1e-4) -> None:
    assert len(answer.boxes) == len(expected.boxes)
    assert (answer.boxes - expected.boxes).abs().max() <= pixels
    assert (answer.scores - expected.scores).abs().max() <= score


@pytest.mark.parametrize("name", PHOTOS)
def test_the_same_boxes_everywhere(
    name: str,
    photos: dict[str, Path],
    detector: FaceDetector,
    artifact: Artifact,
    artifact_path: Path,
    client: httpx.Client,
) -> None:
    photo = photos[f"{name}.png"]
    expected = ask_eager(detector, photo)
    assert len(expected.boxes) >= 1
    assert_same(ask_torchscript(artifact, photo), expected, pixels=0.01)
    assert_same(ask_runner(artifact_path, photo), expected, pixels=0.01)
    assert_same(ask_http(client, photo), expected, pixels=0.01)


@pytest.mark.parametrize("name", PHOTOS)
def test_the_same_loss_everywhere(
    name: str,
    photos: dict[str, Path],
    detector: FaceDetector,
    artifact: Artifact,
    artifact_path: Path,
    client: httpx.Client,
    tmp_path: Path,
) -> None:
    best = ask_eager(detector, photos[f"{name}.png"]).boxes[:1].double()
    drawn = torch.tensor([box for file, box in DRAWN_BOXES.items() if file.startswith(name)]).double()
    expected = float(detector.loss(best, drawn))
    assert 0 < expected < 0.6, "the best detection is the face"

    files = {"predictions": best.tolist(), "targets": drawn.tolist()}
    for argument, boxes in files.items():
        (tmp_path / f"{argument}.json").write_text(json.dumps(boxes))
    paths = [word for key in files for word in (f"--{key}", str(tmp_path / f"{key}.json"))]
    losses = {
        "torchscript": artifact.loss(best, drawn),
        "runner": run_runner(artifact_path, "loss", *paths)["loss"],
        "http": client.post("/v1/loss", json=files).json()["loss"],
    }
    assert losses == {runtime: pytest.approx(expected, abs=1e-6) for runtime in losses}


def test_jpeg(photos: dict[str, Path], artifact: Artifact, artifact_path: Path, client: httpx.Client) -> None:
    # Python decodes with libjpeg, the runner with stb_image; gray levels differ by up to 3.
    photo = photos["grace_hopper.jpg"]
    expected = ask_torchscript(artifact, photo)
    assert_same(ask_http(client, photo), expected, pixels=0.01)
    best = Answer(expected.boxes[:1], expected.scores[:1])
    found = ask_runner(artifact_path, photo)
    assert_same(Answer(found.boxes[:1], found.scores[:1]), best, pixels=0.5, score=0.01)


@pytest.mark.gpu
@pytest.mark.parametrize("name", PHOTOS)
def test_the_gpu_agrees(
    name: str, photos: dict[str, Path], detector: FaceDetector, artifact_path: Path
) -> None:
    photo = photos[f"{name}.png"]
    expected = ask_eager(detector, photo)
    on_gpu = load_detector().eval().cuda()
    assert_same(ask_eager(on_gpu, photo, "cuda"), expected, pixels=0.5, score=0.02)
    assert_same(
        ask_torchscript(load_artifact(artifact_path, "cuda"), photo), expected, pixels=0.5, score=0.02
    )
