"""Front ends and engines in processes of their own: what they answer, and what happens when one dies."""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from serve_process import PATIENCE, ServeProcess, fork_servers, workers

from lensbox.runtime.artifact import Artifact

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux' shared memory")

_LOSS = {"predictions": [[0, 0, 1, 1]], "targets": [[0, 0, 1, 1]]}


@pytest.fixture(scope="module")
def process(artifact_path: Path) -> Iterator[ServeProcess]:
    process = ServeProcess(
        artifact_path, "--frontends", "2", "--devices", "cpu,cpu", "--max-pixels", "1000000"
    )
    yield process
    process.close()


@pytest.fixture(scope="module")
def url(process: ServeProcess, wait_until: Callable[..., None]) -> str:
    wait_until(lambda: process.url() is not None)
    url = process.url() or ""
    wait_until(lambda: _is_whole(url))
    return url


def _is_whole(url: str) -> bool:
    """Whether a front end is ready, and sees both engines."""
    try:
        response = httpx.get(f"{url}/readyz", timeout=PATIENCE)
    except httpx.TransportError:
        return False
    return response.status_code == 200 and "missing" not in response.json()


class Askers:
    """Threads that ask again and again, each request over a connection of its own, until they are stopped."""

    def __init__(self, url: str, file: bytes, count: int = 4) -> None:
        self.answers: list[tuple[float, str]] = []
        self._url, self._file = url, file
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self._stopped.is_set():
            try:
                response = httpx.post(f"{self._url}/v1/detect", content=self._file, timeout=PATIENCE)
                status = str(response.status_code)
            except httpx.TransportError:
                status = "broken"
            self.answers.append((time.monotonic(), status))

    def stop(self) -> Counter[str]:
        self._stopped.set()
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        return Counter(status for _, status in self.answers)


def test_answers_are_those_of_the_artifact(
    url: str, artifact: Artifact, encode: Callable[..., bytes]
) -> None:
    for file in (encode("JPEG"), encode("PNG"), encode("PNG", "L")):
        found = artifact.detect_image(artifact.read_photo(file))
        for _ in range(4):  # of both front ends and both engines
            answer = httpx.post(f"{url}/v1/detect", content=file, timeout=PATIENCE).json()
            assert [one["score"] for one in answer["detections"]] == pytest.approx(found.scores.tolist())
            assert (answer["width"], answer["height"]) == (200, 120)
    assert httpx.post(f"{url}/v1/loss", json=_LOSS, timeout=PATIENCE).json() == {"loss": 0, "slots": 1}
    empty: dict[str, list[list[float]]] = {"predictions": [], "targets": []}
    assert httpx.post(f"{url}/v1/loss", json=empty, timeout=PATIENCE).json()["slots"] == 0
    model = httpx.get(f"{url}/v1/model", timeout=PATIENCE).json()
    assert model["weights_sha256"] == artifact.metadata.weights_sha256
    assert model["service"]["device"] == "cpu"


def test_several_images_losses_and_figures_come_from_all_processes(
    url: str, artifact: Artifact, encode: Callable[..., bytes]
) -> None:
    files = [encode("PNG"), encode("JPEG"), b"no image", encode("PNG", "L")]
    alone = [artifact.detect_image(artifact.read_photo(files[index])) for index in (0, 1, 3)]
    for _ in range(4):  # of both front ends and both engines
        form = [("image", file) for file in files * 5]
        answers = httpx.post(f"{url}/v1/detect", files=form, timeout=PATIENCE).json()["images"]
        bad = answers[2::4]
        assert [one["error"]["code"] for one in bad] == ["undecodable_image"] * 5
        for index, expected in zip((0, 1, 3), alone, strict=True):
            for answer in answers[index::4]:
                scores = [one["score"] for one in answer["detections"]]
                assert scores == pytest.approx(expected.scores.tolist(), rel=1e-4)

        ragged = {"predictions": [[[0, 0, 1, 1], [0, 0, 2, 2]], []], "targets": [[[0, 0, 1, 1]], []]}
        question = {**ragged, "weights": [3, 1], "per_image": True, "gradient": True}
        loss = httpx.post(f"{url}/v1/loss", json=question, timeout=PATIENCE).json()
        assert (loss["loss"], loss["slots"], loss["per_image"]) == (0, 1, [0, 0])
        assert [len(image) for image in loss["gradient"]] == [2, 0]

        targets = json.dumps([alone[0].boxes[:1].tolist(), [], []])
        form = [("image", files[0]), ("image", files[2]), ("image", files[3])]
        figures = httpx.post(
            f"{url}/v1/evaluate", files=form, data={"targets": targets}, timeout=PATIENCE
        ).json()
        assert (figures["evaluated"], figures["hits"], figures["misses"]) == (2, 1, 0)
        assert figures["loss"] == pytest.approx(0, abs=1e-4)
        headers = {"Accept": "image/jpeg"}
        drawn = httpx.post(f"{url}/v1/detect", content=files[0], headers=headers, timeout=PATIENCE)
        assert drawn.content.startswith(b"\xff\xd8\xff")


def test_metrics_are_those_of_all_processes(
    url: str, encode: Callable[..., bytes], wait_until: Callable[..., None]
) -> None:
    def value(name: str) -> float:
        text = httpx.get(f"{url}/metrics", timeout=PATIENCE).text
        lines = [line.rpartition(" ") for line in text.splitlines()]
        return sum(float(number) for sample, _, number in lines if sample == name)

    answered = 'lensbox_requests_total{route="/v1/detect",status="200"}'
    inferences = 'lensbox_stage_seconds_count{stage="inference"}'
    before, batches = value(answered), value(inferences)
    for _ in range(8):  # connections of their own: of both front ends, and engines
        httpx.post(f"{url}/v1/detect", content=encode("PNG"), timeout=PATIENCE)
    wait_until(lambda: value(answered) == before + 8 and value(inferences) == batches + 8)
    for _ in range(4):  # whoever is asked
        assert value(answered) == before + 8
    wait_until(lambda: value("lensbox_ready") == 1)
    assert value("lensbox_restarts_total") == 0


def test_errors_come_as_from_one_process(url: str, png: bytes) -> None:
    assert httpx.post(f"{url}/v1/detect", content=b"no image", timeout=PATIENCE).status_code == 400
    late = {"X-Request-Timeout-Ms": "1"}
    assert httpx.post(f"{url}/v1/detect", content=png, headers=late, timeout=PATIENCE).status_code == 504
    assert _is_whole(url)


@pytest.mark.parametrize("kind", ["engines", "frontends"])
def test_a_process_that_is_killed_is_replaced(
    kind: str, process: ServeProcess, url: str, png: bytes, wait_until: Callable[..., None]
) -> None:
    wait_until(lambda: all(len(pids) == 2 for pids in workers(process).values()))
    askers = Askers(url, png)
    try:
        wait_until(lambda: len(askers.answers) > 10)
        killed = workers(process)[kind]
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: all(len(pids) == 2 for pids in workers(process).values()))
        wait_until(lambda: _is_whole(url))
        before = len(askers.answers)
        wait_until(lambda: Counter(status for _, status in askers.answers[before:])["200"] > 10)
    finally:
        statuses = askers.stop()
    # Nothing hangs: those whose engine died are told so, and those whose front end died see it.
    assert set(statuses) <= {"200", "503"} if kind == "engines" else {"200", "503", "broken"}
    assert not set(killed) & set(workers(process)[kind])
    assert "SIGKILL) is started again" in process.log
    assert "Traceback" not in process.log


def test_what_was_accepted_is_answered_at_the_end(process: ServeProcess, url: str, png: bytes) -> None:
    askers = Askers(url, png)
    try:
        while len(askers.answers) < 10:
            time.sleep(0.01)
        running = [pid for pids in workers(process).values() for pid in pids]
        assert process.end(signal.SIGTERM) == 0
    finally:
        statuses = askers.stop()
    # Broken are those that came when nobody listened any more.
    assert set(statuses) <= {"200", "broken"}
    assert not any(Path(f"/proc/{pid}").exists() and _is_alive(pid) for pid in running)
    assert "Traceback" not in process.log


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")


def test_a_second_signal_ends_all_processes(artifact_path: Path, wait_until: Callable[..., None]) -> None:
    process = ServeProcess(artifact_path, "--frontends", "1")
    try:
        wait_until(lambda: process.url() is not None)
        url = process.url() or ""
        wait_until(lambda: _is_whole(url))
        running = [pid for pids in workers(process).values() for pid in pids]
        assert len(running) == 2
        process.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)  # two of the same number that wait together are one
        assert process.end(signal.SIGTERM) in (0, 128 + signal.SIGTERM)
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() and _is_alive(pid) for pid in running))
    finally:
        process.close()


def test_an_engine_that_cannot_start_is_one_message(tmp_path: Path) -> None:
    process = ServeProcess(tmp_path / "nothing.pt", "--frontends", "1")
    try:
        assert process.process.wait(PATIENCE) == 3
        process.thread.join(PATIENCE)
        message = "lensbox serve: cannot start: path must be an artifact file, got "
        assert [line for line in process.lines if message in line]
        assert "Traceback" not in process.log
    finally:
        process.close()


def test_a_lost_supervisor_takes_its_processes_with_it(
    artifact_path: Path, wait_until: Callable[..., None]
) -> None:
    process = ServeProcess(artifact_path, "--frontends", "1")
    try:
        wait_until(lambda: process.url() is not None)
        url: Any = process.url()
        wait_until(lambda: _is_whole(url))
        running = [pid for pids in workers(process).values() for pid in pids]
        process.process.kill()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() and _is_alive(pid) for pid in running))
    finally:
        process.close()


@pytest.mark.parametrize("delay", [0.0, 0.3, 0.6, 0.9])
def test_ctrl_c_while_it_loads(artifact_path: Path, wait_until: Callable[..., None], delay: float) -> None:
    """It comes to all processes of the terminal's job; the fork server imports torch for a second."""
    process = ServeProcess(artifact_path, "--frontends", "1")
    try:
        wait_until(lambda: process.process.poll() is not None or bool(fork_servers(process)))
        time.sleep(delay)
        os.killpg(process.process.pid, signal.SIGINT)
        assert process.process.wait(PATIENCE) == 0, process.log
        process.thread.join(PATIENCE)
        assert "Traceback" not in process.log
    finally:
        process.close()
