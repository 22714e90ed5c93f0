"""Front ends and engines in separate processes: answers, restarts and shutdown."""

import contextlib
import io
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import PIL.Image
import pytest
import torch
from serve_process import ServeProcess
from services import Encode, connect, refuses
from torch import Tensor
from user_detectors import Brightest
from waiting import PATIENCE, wait_until

from lensbox.export.pipeline import save_artifact
from lensbox.runtime.artifact import Artifact
from lensbox.serve.processes import supervisor


def workers(process: ServeProcess) -> dict[str, list[int]]:
    """Return the pids of engines and front ends."""
    found: dict[str, list[int]] = {"engines": [], "frontends": []}
    kinds = {"lensbox-engine": "engines", "lensbox-http": "frontends"}
    for worker in [child for server in fork_servers(process) for child in _children(server)]:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if kind := kinds.get(Path(f"/proc/{worker}/comm").read_text().strip()):
                found[kind].append(worker)
    return found


def fork_servers(process: ServeProcess) -> list[int]:
    """Return the pid of the fork server, if it runs."""
    return [child for child in _children(process.process.pid) if "forkserver" in _command_line(child)]


def _command_line(pid: int) -> str:
    """Return the command line of a process; "" if it has just ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _children(pid: int) -> list[int]:
    """Return the pids of child processes; none if the process has just ended."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux' shared memory")

if hasattr(os, "memfd_create"):
    from lensbox.serve.processes.heartbeat import Heartbeat


@pytest.fixture(scope="module")
def process(artifact_path: Path) -> Iterator[ServeProcess]:
    options = ("--frontends", "2", "--devices", "cpu,cpu", "--max-pixels", "1000000")
    with ServeProcess(artifact_path, *options) as process:
        yield process


@pytest.fixture(scope="module")
def url(process: ServeProcess) -> str:
    return process.ready()


def _all_run(process: ServeProcess) -> bool:
    return all(len(pids) == 2 for pids in workers(process).values())


def _all_ended(pids: list[int]) -> bool:
    def has_ended(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
        except (FileNotFoundError, ProcessLookupError):
            return True

    return all(map(has_ended, pids))


@contextlib.contextmanager
def asking(url: str, file: bytes) -> Iterator[list[str]]:
    """Send requests from four threads, each over a new connection; yield the list of statuses."""
    statuses: list[str] = []
    stopped = threading.Event()

    def ask() -> None:
        while not stopped.is_set():
            try:
                response = httpx.post(f"{url}/v1/detect", content=file, timeout=PATIENCE)
                statuses.append(str(response.status_code))
            except httpx.TransportError:
                statuses.append("broken")

    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(ask)
        try:
            wait_until(lambda: len(statuses) > 10)
            yield statuses
        finally:
            stopped.set()


def test_processes_return_the_artifacts_results(url: str, artifact: Artifact, encode: Encode) -> None:
    files = [encode("PNG"), encode("JPEG"), b"no image", encode("PNG", "L")]
    alone = {index: artifact.detect_image(artifact.read_photo(files[index])) for index in (0, 1, 3)}
    ragged = {"predictions": [[[0, 0, 1, 1], [0, 0, 2, 2]], []], "targets": [[[0, 0, 1, 1]], []]}
    question = {**ragged, "gradient": True}

    def ask(file: bytes) -> Any:
        return httpx.post(f"{url}/v1/detect", content=file, timeout=PATIENCE).json()

    for _ in range(4):  # of both front ends and both engines
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(ask, files * 5))
        assert [one["code"] for one in answers[2::4]] == ["undecodable_image"] * 5
        for index, expected in alone.items():
            for answer in answers[index::4]:
                assert (answer["width"], answer["height"]) == (200, 120)
                scores = [found["score"] for found in answer["detections"]]
                assert scores == pytest.approx(expected.scores.tolist(), rel=1e-4)

        loss = httpx.post(f"{url}/v1/loss", json=question, timeout=PATIENCE).json()
        assert (loss["loss"], loss["slots"]) == (0, 1)
        assert [len(image) for image in loss["gradient"]] == [2, 0]
    model = httpx.get(f"{url}/v1/model", timeout=PATIENCE).json()
    assert model["weights_sha256"] == artifact.metadata.weights_sha256
    assert model["service"]["device"] == "cpu"


def _value(url: str, name: str) -> float:
    """Return the value of a sample of /metrics; 0 if there is none."""
    text = httpx.get(f"{url}/metrics", timeout=PATIENCE).text
    samples = (line.rpartition(" ") for line in text.splitlines())
    return sum(float(number) for sample, _, number in samples if sample == name)


def test_metrics_are_sums_over_processes(url: str, png: bytes) -> None:
    answered = 'lensbox_requests_total{route="/v1/detect",status="200"}'
    inferences = 'lensbox_stage_seconds_count{stage="inference"}'
    before, batches = _value(url, answered), _value(url, inferences)
    for _ in range(8):  # new connections, so that both front ends and engines answer
        httpx.post(f"{url}/v1/detect", content=png, timeout=PATIENCE)
    wait_until(lambda: _value(url, answered) == before + 8 and _value(url, inferences) == batches + 8)
    for _ in range(4):  # whichever front end answers
        assert _value(url, answered) == before + 8
    wait_until(lambda: _value(url, "lensbox_ready") == 1)
    assert _value(url, "lensbox_restarts_total") == 0


@pytest.mark.parametrize("kind", ["engines", "frontends", "fork server"])
def test_a_killed_process_is_replaced(kind: str, process: ServeProcess, url: str, png: bytes) -> None:
    wait_until(lambda: _all_run(process))

    def running() -> list[int]:
        return fork_servers(process) if kind == "fork server" else workers(process)[kind]

    with asking(url, png) as statuses:
        killed, restarts = running(), _value(url, "lensbox_restarts_total")
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(running()) == len(killed) and not set(running()) & set(killed))
        wait_until(lambda: _all_run(process))
        process.ready()
        before = len(statuses)
        wait_until(lambda: statuses[before:].count("200") > 10)
    # Nothing hangs: a request whose engine died gets 503, and one whose front end died a closed connection.
    assert set(statuses) <= {"200", "503", *(() if kind == "engines" else ("broken",))}
    assert "ended with SIGKILL and is restarted" in process.log
    assert "Traceback" not in process.log
    wait_until(lambda: _value(url, "lensbox_restarts_total") >= restarts + 2)


def test_retries_a_failed_start_with_back_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Retry a failed start, for example after the fork server was killed."""
    monkeypatch.setattr(supervisor, "ensure_fork_server", lambda: None)
    starts: list[None] = []

    class Process:
        exitcode = None

        def __init__(self, **_: Any) -> None:
            pass

        def start(self) -> None:
            starts.append(None)
            if len(starts) <= 3:
                raise EOFError

    now = 100.0
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: now))
    context: Any = SimpleNamespace(Process=Process, Pipe=multiprocessing.Pipe)
    child = supervisor.Child("an engine", "engine-0", print, (), Heartbeat(), lambda _: 1.0, reports=True)
    restarts: Any = None
    for _ in range(10):
        supervisor.keep_alive(child, context, restarts)
        now += 0.2
    assert len(starts) == 4  # at 0, 0.2, 0.8 and 1.8 seconds
    assert child.process is not None
    assert caplog.text.count("an engine cannot be started; retrying: ") == 3


def test_connections_are_refused_while_requests_in_progress_are_answered(
    artifact_path: Path, png: bytes
) -> None:
    with ServeProcess(artifact_path, "--frontends", "2", "--shutdown-delay", "0") as process:
        url = process.ready()
        head = f"POST /v1/detect HTTP/1.1\r\nHost: x\r\nContent-Length: {len(png)}\r\n\r\n".encode()

        with connect(url) as client:
            client.sendall(head + png[:100])
            wait_until(lambda: _value(url, "lensbox_requests_in_progress") == 1)
            process.process.send_signal(signal.SIGTERM)
            wait_until(lambda: refuses(url))
            assert process.process.poll() is None
            client.sendall(png[100:])
            assert client.recv(12) == b"HTTP/1.1 200"
        assert process.process.wait(PATIENCE) == 0


def test_sigterm_answers_accepted_requests(process: ServeProcess, url: str, png: bytes) -> None:
    with asking(url, png) as statuses:
        running = [pid for pids in workers(process).values() for pid in pids]
        assert process.end(signal.SIGTERM) == 0
    # Requests after the shutdown have broken connections.
    assert set(statuses) <= {"200", "broken"}
    assert _all_ended(running)
    assert "Traceback" not in process.log


def test_front_ends_share_the_keys_in_the_environment(
    artifact_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "alice-0123456789abcdef"
    monkeypatch.setenv("LENSBOX_API_KEYS", key)
    with ServeProcess(artifact_path, "--frontends", "2") as process:
        url = process.ready()
        wait_until(lambda: len(workers(process)["frontends"]) == 2)
        for headers, status in (({"Authorization": f"Bearer {key}"}, 200), ({}, 401)):
            for _ in range(10):  # over ten connections, so of both front ends
                assert httpx.get(f"{url}/v2", headers=headers, timeout=PATIENCE).status_code == status


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_second_signal_or_killed_supervisor_ends_all_processes(
    artifact_path: Path, number: signal.Signals
) -> None:
    options = ("--frontends", "1", "--shutdown-delay", "3600", "--shutdown-timeout", "3600")
    with ServeProcess(artifact_path, *options) as process:
        url = process.ready()
        running = [pid for pids in workers(process).values() for pid in pids]
        assert len(running) == 2
        process.process.send_signal(signal.SIGTERM)
        wait_until(lambda: httpx.get(f"{url}/readyz", timeout=PATIENCE).status_code == 503)
        assert process.end(number) in (128 + signal.SIGTERM, -number)
        wait_until(lambda: _all_ended(running))


@pytest.mark.exhaustive
@pytest.mark.parametrize("moment", ["fork server", "engine"])
def test_ctrl_c_while_loading_exits_with_0(artifact_path: Path, moment: str) -> None:
    """Ctrl-C reaches all processes of the terminal's job."""
    with ServeProcess(artifact_path, "--frontends", "1") as process:
        if moment == "fork server":
            wait_until(lambda: bool(fork_servers(process)))
        else:
            wait_until(lambda: bool(workers(process)["engines"]))
        os.killpg(process.process.pid, signal.SIGINT)
        assert process.process.wait(PATIENCE) == 0, process.log
        process.thread.join(PATIENCE)
        assert "Traceback" not in process.log


# --- stuck processes ---

_SOONER = "import lensbox.serve.processes.supervisor as supervisor\nsupervisor."


def _is_stopped(pid: int) -> bool:
    """Return whether every thread has stopped: on a busy machine some answer requests after SIGSTOP."""
    states = [
        task.read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").glob("*/stat")
    ]
    return set(states) == {"T"}


@pytest.mark.exhaustive
def test_a_stuck_front_end_is_replaced(artifact_path: Path) -> None:
    with ServeProcess(artifact_path, "--frontends", "1", before=f"{_SOONER}SILENCE = 3.0") as process:
        url = process.ready()
        with httpx.Client(base_url=url, timeout=PATIENCE) as client:
            assert client.get("/healthz").status_code == 200
            (front_end,) = workers(process)["frontends"]
            os.kill(front_end, signal.SIGSTOP)
            wait_until(lambda: _is_stopped(front_end))
            with pytest.raises(httpx.TransportError):  # the request does not hang
                client.get("/healthz")
        process.ready()
        assert "front end 1 had no heartbeat for 3 s and is killed" in process.log
        assert process.end(signal.SIGTERM) == 0


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


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["the model", "the process"])
def test_a_stuck_engine_is_replaced(kind: str, png: bytes, tmp_path: Path) -> None:
    detector: Any = Loops()
    save_artifact(detector, tmp_path / "detector.pt")
    white = io.BytesIO()
    PIL.Image.new("L", (64, 64), 255).save(white, "PNG")
    options = ("--frontends", "1", "--answer-timeout", "2", "--engine-timeout", "2")
    path, before = tmp_path / "detector.pt", f"{_SOONER}ENGINE_SILENCE = 1.0"
    with (
        ServeProcess(path, *options, before=before) as process,
        httpx.Client(base_url=process.ready(), timeout=PATIENCE) as client,
    ):
        assert client.post("/v1/detect", content=png).status_code == 200
        engines = workers(process)["engines"]
        if kind == "the model":
            assert client.post("/v1/detect", content=white.getvalue()).status_code in (503, 504)
            wait_until(
                lambda: "the engine on cpu ends: a call of the model has run for more than" in process.log
            )
            wait_until(lambda: "ended with code 1 and is restarted" in process.log)
        else:
            os.kill(engines[0], signal.SIGSTOP)
            wait_until(lambda: "ended with SIGKILL and is restarted" in process.log)
            assert process.log.count("the engine on cpu had no heartbeat for") == 1
        wait_until(lambda: client.post("/v1/detect", content=png).status_code == 200)
        assert client.get("/readyz").status_code == 200
        assert not set(engines) & set(workers(process)["engines"])
        assert process.end(signal.SIGTERM) == 0
