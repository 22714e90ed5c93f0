"""Services on the loopback interface, over a real artifact or over a fake whose every step a test decides."""

import contextlib
import io
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest
import torch
import uvicorn
from fastapi import FastAPI
from png_files import png_file
from small_detectors import save_random_artifact
from waiting import PATIENCE, wait_until

from lensbox.artifact.metadata import Reading
from lensbox.common.fields import Orientation
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.box_loss import BoxPairs, Losses
from lensbox.runtime.detection import Detections
from lensbox.runtime.images.photo import Photo
from lensbox.runtime.loading import load_artifact
from lensbox.runtime.self_test import SelfTestReport
from lensbox.serve.http.app import create_app
from lensbox.serve.http.listener import listen, url_of
from lensbox.serve.http.server import uvicorn_config
from lensbox.serve.http.service import Service
from lensbox.serve.settings import Settings


@dataclass
class Running:
    """A service that runs: a client of it, and what it keeps inside."""

    client: httpx.Client
    service: Service
    stop: Callable[[], None]  # asks for the end and does not wait for it


StartService = Callable[..., Running]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """One thread for each inference: on a busy machine torch's threads spin, waiting for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def artifact_path(_one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_artifact(tmp_path_factory.mktemp("artifact"))


@pytest.fixture(scope="session")
def artifact(artifact_path: Path) -> Artifact:
    """The same artifact, to be called directly."""
    return load_artifact(artifact_path)


@pytest.fixture
def start_service() -> Iterator[StartService]:
    """Starts a service over `load` with the settings of the test. All end with the test."""
    with contextlib.ExitStack() as stack:

        def start(load: Callable[[], Any], tracing: Any = None, **settings: Any) -> Running:
            chosen = Settings(artifact=Path("unused"), **settings)
            app = create_app(chosen, load=load, tracing=tracing)
            client, stop = stack.enter_context(_running(app, chosen))
            return Running(client, app.state.service, stop)

        yield start


@pytest.fixture(scope="session")
def client(artifact_path: Path) -> Iterator[httpx.Client]:
    """A client of a service over the real artifact, with small limits."""
    with _client_of(artifact_path) as client:
        yield client


@pytest.fixture(scope="session", name="client_of")
def _client_of_artifact() -> Callable[[Path], contextlib.AbstractContextManager[httpx.Client]]:
    return _client_of


@contextlib.contextmanager
def _client_of(artifact: Path) -> Iterator[httpx.Client]:
    settings = Settings(
        artifact=artifact,
        device="cpu",
        threads=1,
        max_body_bytes=2 << 20,
        max_json_bytes=1 << 20,
        max_pixels=1_000_000,
        max_boxes=100,
    )
    with _running(create_app(settings), settings) as (client, _):
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


@contextlib.contextmanager
def _running(app: FastAPI, settings: Settings) -> Iterator[tuple[httpx.Client, Callable[[], None]]]:
    config = uvicorn_config(app, settings, "critical")
    with _serving(config) as (url, stop), httpx.Client(base_url=url, timeout=PATIENCE) as client:
        # The socket takes connections at once; an answer means that the app has started.
        client.get("/healthz")
        yield client, stop


@contextlib.contextmanager
def _serving(config: uvicorn.Config) -> Iterator[tuple[str, Callable[[], None]]]:
    """Runs a server in a thread; gives its URL and a function that asks for its end."""
    listener = listen("127.0.0.1", 0)
    url = url_of(listener)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()

    def stop() -> None:
        server.should_exit = True

    try:
        yield url, stop
    finally:
        stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.fixture(scope="session", name="wait_until")
def _wait_until() -> Callable[[Callable[[], bool]], None]:
    return wait_until


class FakeArtifact:
    """Answers like an artifact. While `gate` is closed, its calls wait.

    calls: what was asked for so far, image by image; batches: how many images at a time. bad_shape: that of
    images which make their batch fail.
    """

    device = torch.device("cpu")
    metadata = SimpleNamespace(canvas=None, classes=(), methods=("preprocess", "detect", "restore", "loss"))

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

    def reading(self, orientation: Orientation | None = None, full_size: bool = False) -> Reading:
        return Reading().asked(orientation, full_size)

    def detect_images(
        self, photos: Sequence[Photo], score_threshold: float | None, iou_threshold: float | None
    ) -> list[Detections]:
        shapes = [tuple(photo.pixels.shape) for photo in photos]
        self._call(*(("detect", (shape, score_threshold, iou_threshold)) for shape in shapes))
        if self.bad_shape in shapes:
            raise ValueError("a bad image")
        found = torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([0.5])
        return [Detections(*found) for _ in photos]

    def detect_named(
        self, canvases: torch.Tensor, score_threshold: float | None, iou_threshold: float | None
    ) -> dict[str, torch.Tensor]:
        """One box a canvas, whose x1 is its first pixel."""
        self._call(("canvases", (tuple(canvases.shape), score_threshold, iou_threshold)))
        n = len(canvases)
        boxes = torch.zeros(n, 3, 4)
        boxes[:, 0, 0] = canvases[:, 0, 0, 0]
        counts = torch.ones(n, dtype=torch.int32)
        return {"boxes": boxes, "scores": torch.zeros(n, 3), "counts": counts}

    def losses(self, pairs: BoxPairs, per_image: bool, gradient: bool) -> Losses:
        self._call(("loss", tuple(pairs.predictions.shape)))
        return Losses(0.25, None, None)

    def self_test(self) -> SelfTestReport:
        if self.self_test_error is not None:
            raise self.self_test_error
        return SelfTestReport(not self.self_test_failures, self.self_test_failures, 0.0, 0.0, 0.0)

    def _call(self, *calls: tuple[str, Any]) -> None:
        assert torch.is_inference_mode_enabled()
        self.threads.add(threading.get_ident())
        self.calls += calls
        self.batches.append(len(calls))
        assert self.gate.wait(PATIENCE)
        if self.error is not None:
            raise self.error


@pytest.fixture
def fake() -> Iterator[FakeArtifact]:
    """A fake artifact; its gate opens when the test ends, whatever happened."""
    fake = FakeArtifact()
    yield fake
    fake.gate.set()


@pytest.fixture
def start(start_service: StartService, fake: FakeArtifact) -> Callable[..., Running]:
    """Starts a service over the fake artifact with the settings of the test, and waits until it is ready."""

    def start(**settings: Any) -> Running:
        running = start_service(lambda: fake, **settings)
        wait_until(lambda: running.client.get("/readyz").status_code == 200)
        return running

    return start


@pytest.fixture(scope="session")
def photograph() -> np.ndarray[Any, Any]:
    """A made-up color picture, uint8 [120, 200, 3], smooth enough for JPEG."""
    y, x = np.mgrid[0:120, 0:200]
    channels = [127 + 120 * np.sin(x / 17 + phase) * np.cos(y / 23 - phase) for phase in (0, 1, 2)]
    return np.stack(channels, -1).astype(np.uint8)


@pytest.fixture(scope="session")
def encode(photograph: np.ndarray[Any, Any]) -> Callable[..., bytes]:
    """Gives the bytes of the picture as a file: encode("PNG"), encode("PNG", "L")."""

    def encode(format_name: str, mode: str = "RGB", **options: Any) -> bytes:
        buffer = io.BytesIO()
        PIL.Image.fromarray(photograph).convert(mode).save(buffer, format_name, **options)
        return buffer.getvalue()

    return encode


@pytest.fixture(scope="session")
def png(encode: Callable[..., bytes]) -> bytes:
    """The picture as a PNG file."""
    return encode("PNG")


@pytest.fixture(scope="session")
def empty_png() -> Callable[[int, int], bytes]:
    """Gives a PNG file that claims a width and a height and holds no pixels."""

    def make(width: int, height: int) -> bytes:
        return png_file(width, height, pixels=b"")

    return make
