"""Front ends and engines in processes of their own: their answers, and restarts."""

import contextlib
import io
import multiprocessing
import os
import re
import select
import signal
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import PIL.Image
import pytest
import torch
from serve_process import PATIENCE, ServeProcess
from torch import Tensor
from user_detectors import Brightest

from lensbox.export.pipeline import save_artifact
from lensbox.runtime.artifact import Artifact
from lensbox.serve.processes import supervisor


def workers(process: ServeProcess) -> dict[str, list[int]]:
    """The pids of engines and front ends."""
    found: dict[str, list[int]] = {"lensbox-engine": [], "lensbox-http": []}
    for server in fork_servers(process):
        for worker in _children(server):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found.setdefault(Path(f"/proc/{worker}/comm").read_text().strip(), []).append(worker)
    return {"engines": found["lensbox-engine"], "frontends": found["lensbox-http"]}


def fork_servers(process: ServeProcess) -> list[int]:
    """The pid of the one that there is."""
    return [
        child
        for child in _children(process.process.pid)
        if b"forkserver" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def _children(pid: int) -> list[int]:
    """None of a process that has just ended."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux' shared memory")

if hasattr(os, "memfd_create"):
    from lensbox.serve.processes.heartbeat import Heartbeat

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


def test_answers_as_the_artifact_does(url: str, artifact: Artifact, encode: Callable[..., bytes]) -> None:
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


def test_images_losses_and_pictures_come_from_all_processes(
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

        headers = {"Accept": "image/jpeg"}
        drawn = httpx.post(f"{url}/v1/detect", content=files[0], headers=headers, timeout=PATIENCE)
        assert drawn.content.startswith(b"\xff\xd8\xff")


def test_metrics_are_sums_over_processes(
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


@pytest.mark.parametrize("kind", ["engines", "frontends"])
def test_a_killed_process_is_replaced(
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


@pytest.mark.parametrize("error", [EOFError(), ConnectionRefusedError("refused")])
def test_a_failed_start_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """Retry a failed start, for example after the fork server was killed."""
    monkeypatch.setattr(supervisor, "_ensure_fork_server", lambda: None)
    starts: list[None] = []

    class Process:
        exitcode = None

        def __init__(self, **_: Any) -> None:
            pass

        def start(self) -> None:
            starts.append(None)
            if len(starts) <= 3:
                raise error

    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    context: Any = SimpleNamespace(Process=Process, Pipe=multiprocessing.Pipe)
    child = supervisor._Child("an engine", "engine-0", print, (), Heartbeat(), lambda _: 1.0, reports=True)
    restarts: Any = None
    for _ in range(10):
        supervisor._keep_alive(child, context, restarts)
        now += 0.2
    assert len(starts) == 4  # at 0, 0.2, 0.8 and 1.8 seconds
    assert child.process is not None
    assert caplog.text.count("an engine cannot be started, is tried again: ") == 3


def test_a_killed_fork_server_is_replaced(
    process: ServeProcess, url: str, png: bytes, wait_until: Callable[..., None]
) -> None:
    askers = Askers(url, png)
    try:
        wait_until(lambda: len(askers.answers) > 10)
        (killed,) = fork_servers(process)
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: fork_servers(process) not in ([], [killed]))
        wait_until(lambda: all(len(pids) == 2 for pids in workers(process).values()))
        wait_until(lambda: _is_whole(url))
    finally:
        statuses = askers.stop()
    assert set(statuses) <= {"200", "503", "broken"}
    assert process.process.poll() is None


def test_connections_are_refused_while_requests_in_progress_are_answered(
    artifact_path: Path, png: bytes, wait_until: Callable[..., None]
) -> None:
    process = ServeProcess(artifact_path, "--frontends", "2", "--shutdown-delay", "0")
    try:
        wait_until(lambda: "ready: " in process.log and _is_whole(process.url() or ""))
        host, port = (process.url() or "").removeprefix("http://").split(":")
        head = f"POST /v1/detect HTTP/1.1\r\nHost: x\r\nContent-Length: {len(png)}\r\n\r\n".encode()
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as client:
            client.sendall(head + png[:100])
            wait_until(lambda: _value(f"http://{host}:{port}", "lensbox_requests_in_progress") == 1)
            process.process.send_signal(signal.SIGTERM)

            def refuses() -> bool:
                try:
                    socket.create_connection((host, int(port)), timeout=PATIENCE).close()
                except ConnectionRefusedError:
                    return True
                return False

            wait_until(refuses)
            assert process.process.poll() is None
            client.sendall(png[100:])
            assert client.recv(12) == b"HTTP/1.1 200"
        assert process.process.wait(PATIENCE) == 0
    finally:
        process.close()


def test_sigterm_answers_accepted_requests(process: ServeProcess, url: str, png: bytes) -> None:
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


@pytest.mark.exhaustive
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
    (tmp_path / "noise.pt").write_bytes(b"noise" * 100)
    process = ServeProcess(tmp_path / "noise.pt", "--frontends", "1")
    try:
        assert process.process.wait(PATIENCE) == 3
        process.thread.join(PATIENCE)
        assert process.lines[-1].startswith("lensbox serve: cannot start: ")
        assert "noise.pt" in process.lines[-1]
        assert "Traceback" not in process.log
    finally:
        process.close()


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
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


def _owners(port: int) -> dict[int, int]:
    """The process of each connection that the service has accepted, by the client's port."""
    inodes: dict[str, int] = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        local, remote = (int(words[index].split(":")[1], 16) for index in (1, 2))
        if local == port and remote:
            inodes[words[9]] = remote
    owners: dict[int, int] = {}
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            found = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
            if found is not None and found[1] in inodes:
                owners[inodes[found[1]]] = int(link.parts[2])
    return owners


def _value(url: str, name: str) -> float:
    text = httpx.get(f"{url}/metrics", timeout=PATIENCE).text
    return float(re.findall(rf"^{name} (\S+)$", text, re.MULTILINE)[0])


@pytest.mark.exhaustive
def test_a_killed_front_end_loses_its_own_connections_alone(
    artifact_path: Path, png: bytes, wait_until: Callable[..., None]
) -> None:
    # Time for bodies that arrive while a busy machine looks for who has which connection.
    process = ServeProcess(artifact_path, "--frontends", "2", "--body-timeout", "300")
    try:
        wait_until(lambda: process.url() is not None)
        url = process.url() or ""
        wait_until(lambda: _is_whole(url))
        _kill_one_front_end(process, url, png, wait_until)
    finally:
        process.close()


def _kill_one_front_end(process: ServeProcess, url: str, png: bytes, wait_until: Callable[..., None]) -> None:
    host, port = url.removeprefix("http://").split(":")
    head = f"POST /v1/detect HTTP/1.1\r\nHost: x\r\nContent-Length: {len(png)}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:

        def begin() -> socket.socket:
            """A connection with a request in progress."""
            client = stack.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE))
            client.sendall(head + png[:100])
            return client

        clients = [begin()]
        owned: dict[int, list[socket.socket]] = {}

        def both_have_two() -> bool:
            nonlocal owned
            if len(clients) < 60:  # below --max-requests
                clients.append(begin())
            owners = _owners(int(port))
            owned = defaultdict(list)
            for client in clients:
                owned[owners.get(client.getsockname()[1], 0)].append(client)
            return 0 not in owned and sum(len(those) >= 2 for those in owned.values()) == 2

        wait_until(both_have_two)
        (dead, lost), (_, kept) = owned.items()
        os.kill(dead, signal.SIGKILL)

        # Whoever asked the dead one learns of it at once, though its request was in progress.
        for client in lost:
            assert select.select([client], [], [], 10.0)[0], "the connection hangs"
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""
        # The others' requests are answered, and new ones are.
        for client in kept:
            client.sendall(png[100:])
            assert client.recv(12) == b"HTTP/1.1 200"
        for _ in range(10):
            assert httpx.post(f"{url}/v1/detect", content=png, timeout=PATIENCE).status_code == 200
    wait_until(
        lambda: re.search(r"front end \d \(process ended with SIGKILL\) is started again", process.log)
    )
    wait_until(lambda: _value(url, "lensbox_restarts_total") == 1)
    assert "Traceback" not in process.log


@pytest.mark.exhaustive
def test_a_stuck_front_end_is_replaced(artifact_path: Path, wait_until: Callable[..., None]) -> None:
    sooner = "import lensbox.serve.processes.supervisor as supervisor\nsupervisor._SILENCE = 3.0"
    process = ServeProcess(artifact_path, "--frontends", "1", before=sooner)
    try:
        wait_until(lambda: process.url() is not None)
        url = process.url() or ""
        wait_until(lambda: _is_whole(url))
        with httpx.Client(base_url=url, timeout=PATIENCE) as client:
            assert client.get("/healthz").status_code == 200
            (owner,) = set(_owners(int(url.rpartition(":")[2])).values())
            os.kill(owner, signal.SIGSTOP)
            with pytest.raises(httpx.TransportError):  # and not for ever
                client.get("/healthz")
        wait_until(lambda: _is_whole(url))
        assert "front end 1 has not moved for 3 s and is killed" in process.log
        assert process.end(signal.SIGTERM) == 0
    finally:
        process.close()


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
def stuck_process(tmp_path: Path) -> Iterator[ServeProcess]:
    path = tmp_path / "detector.pt"
    detector: Any = Loops()
    save_artifact(detector, path)
    sooner = "import lensbox.serve.processes.supervisor as supervisor\nsupervisor._ENGINE_SILENCE = 1.0"
    options = ("--frontends", "1", "--answer-timeout", "2", "--engine-timeout", "2")
    process = ServeProcess(path, *options, before=sooner)
    yield process
    process.close()


@pytest.mark.exhaustive
def test_a_stuck_engine_is_replaced(
    stuck_process: ServeProcess, png: bytes, wait_until: Callable[..., None]
) -> None:
    process = stuck_process
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


@pytest.mark.exhaustive
def test_an_engine_without_heartbeat_is_killed(
    stuck_process: ServeProcess, png: bytes, wait_until: Callable[..., None]
) -> None:
    process = stuck_process
    wait_until(lambda: "ready:" in process.log)
    (engine,) = workers(process)["engines"]
    os.kill(engine, signal.SIGSTOP)
    with httpx.Client(base_url=process.url() or "", timeout=PATIENCE) as client:
        wait_until(lambda: "(process ended with SIGKILL) is started again" in process.log)
        wait_until(lambda: client.post("/v1/detect", content=png).status_code == 200)
    assert process.log.count("the engine on cpu has not moved for") == 1
    assert process.end(signal.SIGTERM) == 0
