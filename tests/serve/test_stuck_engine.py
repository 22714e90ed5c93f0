"""A model that never returns from a call: the service says so, and an engine of its own is replaced."""

import io
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import PIL.Image
import pytest
import torch
from problems import problem_of
from serve_process import PATIENCE, ServeProcess, workers
from torch import Tensor
from user_detectors import Brightest

from lensbox.export.artifact_writer import save_artifact
from lensbox.serve.engine.errors import NotReadyError
from lensbox.serve.engine.instance import Instance
from lensbox.serve.engine.jobs import CanvasJob
from lensbox.serve.settings import Settings

needs_processes = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux' shared memory")
if hasattr(os, "memfd_create"):
    from lensbox.serve.processes.engine_process import until_given_up
    from lensbox.serve.processes.pulse import Pulse

_SOON = Settings(Path("unused"), answer_timeout=0.1, engine_timeout=0.2)


@pytest.mark.parametrize("timeout", [0.2, 0.0])
def test_readiness_ends_with_a_call_that_does_not_return(
    start: Callable[..., Any],
    fake: Any,
    wait_until: Callable[..., None],
    png: bytes,
    caplog: pytest.LogCaptureFixture,
    timeout: float,
) -> None:
    client = start(answer_timeout=0.1, engine_timeout=timeout).client
    fake.gate.clear()
    assert client.post("/v1/detect", content=png).status_code == 504
    if timeout:
        wait_until(lambda: client.get("/readyz").status_code == 503)
        reason = "the model has not returned from a call for 0.2 seconds; restart the service"
        for response in (client.get("/readyz"), client.post("/v1/detect", content=png)):
            assert response.status_code == 503
            assert problem_of(response) == {"code": "not_ready", "message": reason}
        assert client.get("/healthz").status_code == 503
        assert "lensbox_ready 0.0" in client.get("/metrics").text
        assert [record.message for record in caplog.records].count(reason) == 1
    else:  # never
        time.sleep(0.5)
    fake.gate.set()
    wait_until(lambda: client.get("/readyz").status_code == 200)
    assert client.get("/healthz").status_code == 200
    assert client.post("/v1/detect", content=png).status_code == 200


def test_each_part_of_a_large_job_is_a_call(
    start: Callable[..., Any], fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    detect = fake.detect_named

    def slow(*arguments: Any) -> Any:
        time.sleep(0.15)
        return detect(*arguments)

    monkeypatch.setattr(fake, "detect_named", slow)
    instance = start(answer_timeout=0.1, engine_timeout=1.0, max_batch=1).service.instance
    future = instance.submit(CanvasJob(torch.zeros([10, 1, 2, 2], dtype=torch.uint8)))
    while not future.done():  # for a second and a half
        assert instance.stuck == ""
        time.sleep(0.01)
    assert len(future.result().boxes) == 10


def test_a_slow_machine_has_the_time_that_loading_took(fake: Any) -> None:
    def load() -> Any:
        time.sleep(0.5)
        return fake

    started = threading.Event()
    instance = Instance(load, _SOON, lambda _: started.set())
    instance.start()
    assert started.wait(PATIENCE)
    assert instance._call_limit >= 0.5
    assert instance.stop(PATIENCE)


@needs_processes
def test_an_engine_beats_until_its_model_is_stuck(fake: Any, wait_until: Callable[..., None]) -> None:
    started = threading.Event()
    instance = Instance(lambda: fake, _SOON, lambda _: started.set())
    instance.start()
    assert started.wait(PATIENCE)
    pulse, reasons = Pulse(), list[str]()
    watcher = threading.Thread(target=lambda: reasons.append(until_given_up(instance, pulse)))
    watcher.start()
    for _ in range(2):
        before = pulse._count()
        wait_until(lambda before=before: pulse._count() > before)
    fake.gate.clear()
    instance.submit(CanvasJob(torch.zeros([1, 1, 2, 2], dtype=torch.uint8)))
    watcher.join(PATIENCE)
    assert reasons == ["the model has not returned from a call for 0.2 seconds; restart the service"]
    with pytest.raises(NotReadyError, match="has not returned"):
        instance.ready_artifact()
    fake.gate.set()
    assert instance.stop(PATIENCE)


class _Woken:
    """An engine of a process that was stopped twice: its call seems to take long, and returns."""

    failure = "its model has failed"

    def __init__(self) -> None:
        self.looks = [*["stuck"] * 3, "", *["stuck"] * 3, ""]

    def join(self, timeout: float) -> bool:
        return not self.looks

    @property
    def stuck(self) -> str:
        return self.looks.pop(0)


@needs_processes
def test_an_engine_that_was_stopped_is_not_given_up_for_that() -> None:
    engine: Any = _Woken()
    assert until_given_up(engine, Pulse()) == engine.failure


class Loops(Brightest):
    """Never returns from a white canvas."""

    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        turns = 0
        while bool((images > 250).all()):
            turns += 1
        cells = torch.nn.functional.avg_pool2d(images.float() / 255, 16)
        scores, index = cells.flatten(1).max(dim=1, keepdim=True)
        corner = torch.stack([index % 4, index // 4], dim=-1) * 16.0
        return torch.cat([corner, corner + 16], dim=-1), scores, (scores[:, 0] > score_threshold).int()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ServeProcess]:
    path = tmp_path / "detector.pt"
    detector: Any = Loops()
    save_artifact(detector, path)
    sooner = "import lensbox.serve.processes.supervisor as supervisor\nsupervisor._ENGINE_SILENCE = 1.0"
    options = ("--frontends", "1", "--answer-timeout", "2", "--engine-timeout", "2")
    process = ServeProcess(path, *options, before=sooner)
    yield process
    process.close()


@needs_processes
def test_an_engine_that_is_stuck_is_replaced(
    process: ServeProcess, png: bytes, wait_until: Callable[..., None]
) -> None:
    wait_until(lambda: "ready:" in process.log)
    white = io.BytesIO()
    PIL.Image.new("L", (64, 64), 255).save(white, "PNG")
    with httpx.Client(base_url=process.url() or "", timeout=PATIENCE) as client:
        assert client.post("/v1/detect", content=png).status_code == 200
        engines = workers(process)["engines"]
        assert client.post("/v1/detect", content=white.getvalue()).status_code in (503, 504)
        wait_until(lambda: "the engine on cpu ends: the model has not returned from a call" in process.log)
        wait_until(lambda: "the engine on cpu (process ended with code 1) is started again" in process.log)
        wait_until(lambda: client.post("/v1/detect", content=png).status_code == 200)
        assert client.get("/readyz").status_code == 200
        assert not set(engines) & set(workers(process)["engines"])
    assert process.end(signal.SIGTERM) == 0


@needs_processes
def test_an_engine_that_cannot_even_end_itself_is_killed(
    process: ServeProcess, png: bytes, wait_until: Callable[..., None]
) -> None:
    wait_until(lambda: "ready:" in process.log)
    (engine,) = workers(process)["engines"]
    os.kill(engine, signal.SIGSTOP)
    with httpx.Client(base_url=process.url() or "", timeout=PATIENCE) as client:
        wait_until(lambda: "(process ended with SIGKILL) is started again" in process.log)
        wait_until(lambda: client.post("/v1/detect", content=png).status_code == 200)
    assert process.log.count("the engine on cpu has not moved for") == 1
    assert process.end(signal.SIGTERM) == 0
