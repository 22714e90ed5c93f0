"""Services on the loopback interface, with a real artifact or with a fake that a test controls."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest
import torch
from picture_files import encoded
from services import LOSS, Begin, Encode, Make, Running, Start, client_of, running, submit
from small_detectors import Landmarks, RedAndBlue
from waiting import PATIENCE, wait_until

from lensbox.common.canvas import Canvas
from lensbox.export.pipeline import save_artifact
from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.detect.detection import Detections
from lensbox.runtime.detect.self_test import SelfTestReport
from lensbox.runtime.file.metadata import Reading
from lensbox.runtime.images.photo import Photo
from lensbox.runtime.loading import load_artifact
from lensbox.serve.engine.instance import Instance
from lensbox.serve.observability.metrics import Metrics
from lensbox.serve.settings import Settings

# Loaded files, and engines and front ends in processes of their own, need Linux' shared memory.
collect_ignore_glob = [] if hasattr(os, "memfd_create") else ["models/test_files.py", "processes/*"]


@pytest.fixture(scope="session")
def artifact_path(random_path: Path) -> Path:
    return random_path


@pytest.fixture(scope="session")
def artifact(artifact_path: Path) -> Artifact:
    """The same artifact, loaded in this process."""
    return load_artifact(artifact_path)


@pytest.fixture
def start_service() -> Iterator[Start]:
    """Start a service over `load` with the settings of the test. All services end with the test."""
    with contextlib.ExitStack() as stack:

        def start(load: Callable[[], Any], **settings: Any) -> Running:
            chosen = Settings(artifact=Path("unused"), **settings)
            return stack.enter_context(running(load, chosen))

        yield start


@pytest.fixture(scope="session")
def client(artifact_path: Path) -> Iterator[httpx.Client]:
    """A client of a service over the real artifact, with small limits."""
    with client_of(artifact_path) as client:
        yield client


@pytest.fixture(scope="session", params=[RedAndBlue, Landmarks])
def own_detector(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Artifact, httpx.Client]]:
    """A detector with labels, and one with further outputs: the artifact, and a client of a service of it."""
    path = tmp_path_factory.mktemp("own") / "detector.pt"
    save_artifact(request.param(), path)
    with client_of(path) as client:
        yield load_artifact(path), client


_OUTPUT = {
    "boxes": {"dtype": "float32", "shape": ["B", 3, 4]},
    "scores": {"dtype": "float32", "shape": ["B", "K"]},
    "counts": {"dtype": "int64", "shape": ["B"]},
}


class FakeArtifact:
    """A stand-in for an artifact. Calls block while `gate` is closed.

    calls: name and arguments per image; batches: images per call. bad_shape: shape of images that make their
    batch fail.
    """

    device = torch.device("cpu")
    largest_batch = 8
    decodes_jpeg = False
    metadata = SimpleNamespace(
        name="fake",
        canvas=Canvas(2, 3),
        classes=(),
        reading=Reading(),
        methods=("preprocess", "detect", "loss"),
        outputs=list(_OUTPUT),
        output=_OUTPUT,
    )

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.calls: list[tuple[str, Any]] = []
        self.threads: set[int] = set()
        self.batches: list[int] = []
        self.bad_shape: tuple[int, ...] | None = None
        self.error: Exception | None = None
        self.self_test_error: Exception | None = None
        self.self_test_failures: list[str] = []

    def fit(self, photos: Sequence[Photo]) -> list[Photo]:
        return [*photos]

    def launch(
        self, photos: Sequence[Photo], score_threshold: float | None, iou_threshold: float | None
    ) -> list[Detections[Any]]:
        shapes = [tuple(photo.pixels.shape) for photo in photos]
        self._call(*(("detect", (shape, score_threshold, iou_threshold)) for shape in shapes))
        if self.bad_shape in shapes:
            raise ValueError("a bad image")
        found = np.array([[1.0, 2.0, 3.0, 4.0]], np.float32), np.array([0.5], np.float32)
        return [Detections(*found) for _ in photos]

    def fetch(self, launched: list[Detections[Any]]) -> list[Detections[Any]]:
        if self.device.type == "cuda":
            assert self.gate.wait(PATIENCE)  # a GPU computes after the launch
        return launched

    def detect(
        self, canvases: torch.Tensor, score_threshold: float | None, iou_threshold: float | None
    ) -> dict[str, torch.Tensor]:
        """Return one box per canvas; x1 is the canvas's first pixel."""
        self._call(("canvases", (tuple(canvases.shape), score_threshold, iou_threshold)))
        n = len(canvases)
        boxes = torch.zeros(n, 3, 4)
        boxes[:, 0, 0] = canvases[:, 0, 0, 0]
        counts = torch.ones(n, dtype=torch.int32)
        return {"boxes": boxes, "scores": torch.zeros(n, 3), "counts": counts}

    def loss(self, predictions: torch.Tensor, targets: torch.Tensor) -> float:
        self._call(("loss", tuple(predictions.shape)))
        return 0.25

    def self_test(self) -> SelfTestReport:
        if self.self_test_error is not None:
            raise self.self_test_error
        return SelfTestReport(not self.self_test_failures, self.self_test_failures, 0.0, 0.0, 0.0)

    def _call(self, *calls: tuple[str, Any]) -> None:
        assert torch.is_inference_mode_enabled()
        self.threads.add(threading.get_ident())
        self.calls += calls
        self.batches.append(len(calls))
        if self.device.type == "cpu":
            assert self.gate.wait(PATIENCE)
        if self.error is not None:
            raise self.error


@pytest.fixture
def fake() -> Iterator[FakeArtifact]:
    """A fake artifact. Its gate opens at the end of the test."""
    fake = FakeArtifact()
    yield fake
    fake.gate.set()


@pytest.fixture
def start(start_service: Start, fake: FakeArtifact) -> Start:
    """Start a service over the fake artifact with the settings of the test, and wait until it is ready."""
    return lambda **settings: start_service(lambda: fake, **settings).ready()


@pytest.fixture
def make(fake: Any) -> Iterator[Make]:
    """Make a ready instance over the fake artifact. Stop all instances at the end."""
    made: list[Instance] = []

    def make(**settings: Any) -> Instance:
        instance = Instance(lambda: fake, Settings(Path("unused"), **settings), Metrics())
        instance.start()
        wait_until(lambda: not instance.missing)
        made.append(instance)
        return instance

    yield make
    fake.gate.set()
    for instance in made:
        assert instance.stop(PATIENCE)


@pytest.fixture
def begin(fake: Any) -> Begin:
    """Submit a job, and return its future once the job is running behind the closed gate."""

    def begin(instance: Instance, job: Any = LOSS) -> "Future[Any]":
        fake.gate.clear()
        count = len(fake.calls)
        future = submit(instance, job)
        wait_until(lambda: len(fake.calls) > count)
        return future

    return begin


@pytest.fixture(scope="session")
def encode() -> Encode:
    """Encode a made-up picture of 200 x 120: encode("PNG"), encode("PNG", "L", orientation=6)."""
    y, x = np.mgrid[0:120, 0:200]
    channels = [127 + 120 * np.sin(x / 17 + phase) * np.cos(y / 23 - phase) for phase in (0, 1, 2)]
    photograph = PIL.Image.fromarray(np.stack(channels, -1).astype(np.uint8))

    def encode(
        format_name: str,
        mode: str = "RGB",
        size: tuple[int, int] = (200, 120),
        orientation: int | None = None,
        **options: Any,
    ) -> bytes:
        if orientation is not None:
            options["exif"] = exif = PIL.Image.Exif()
            exif[0x0112] = orientation
        return encoded(photograph.resize(size).convert(mode), format_name, **options)

    return encode


@pytest.fixture(scope="session")
def png(encode: Encode) -> bytes:
    """The picture as a PNG file."""
    return encode("PNG")
