"""Front ends and engines in separate processes: answers, restarts and shutdown."""

import contextlib
import os
import re
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from serve_process import ServeProcess, read_process, request, with_limits
from services import Encode, asking, connect, refuses
from waiting import PATIENCE, wait_until

from lensbox.runtime.detect.artifact import Artifact
from lensbox.serve.folders import service_folder

KEY = "alice-0123456789abcdef"


def _state(pid: int) -> str:
    """Return the state of a process: "S" if it sleeps, "T" if it is stopped; "X" if it is gone."""
    return (read_process(pid, "stat").rpartition(")")[2].split() or ["X"])[0]


@pytest.fixture(scope="module")
def process(artifact_path: Path) -> Iterator[ServeProcess]:
    """Two front ends and two engines, with an API key from the environment."""
    options = ("--frontends", "2", "--device", "cpu,cpu", "--max-pixels", "1000000")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LENSBOX_API_KEYS", KEY)
        patch.setenv("OMP_DISPLAY_ENV", "true")  # OpenMP logs its settings when it is loaded
        process = ServeProcess(artifact_path, *options)
    with process:
        yield process


@pytest.fixture(scope="module")
def url(process: ServeProcess) -> str:
    return process.ready()


def ask(url: str, method: str = "GET", **options: Any) -> httpx.Response:
    """Send a request with the key over a new connection, so that any front end may answer."""
    return request(method, url, headers={"Authorization": f"Bearer {KEY}"}, **options)


def _all_run(process: ServeProcess) -> bool:
    return [len(pids) for pids in process.workers().values()] == [2, 2]


def _all_ended(pids: list[int]) -> bool:
    return all(_state(pid) in "ZX" for pid in pids)


def _detect(url: str, file: bytes) -> str:
    """Return the status of an answer, or "refused", or "broken" for a lost connection."""
    try:
        return str(ask(f"{url}/v1/detect", "POST", content=file).status_code)
    except httpx.ConnectError:
        return "refused"
    except httpx.TransportError:
        return "broken"


def _value(url: str, name: str) -> float:
    """Return the value of a sample of /metrics; 0 if there is none."""
    samples = (line.rpartition(" ") for line in ask(f"{url}/metrics").text.splitlines())
    return sum(float(number) for sample, _, number in samples if name in (sample, sample.partition("{")[0]))


def test_processes_return_the_artifacts_results(
    process: ServeProcess, url: str, artifact: Artifact, encode: Encode
) -> None:
    files = [encode("PNG"), encode("JPEG"), b"no image", encode("PNG", "L")]
    alone = {index: artifact.detect_image(artifact.read_photo(files[index])) for index in (0, 1, 3)}

    def detect(file: bytes) -> Any:
        return ask(f"{url}/v1/detect", "POST", content=file).json()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(detect, files * 10))
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in process.log
    assert [one["code"] for one in answers[2::4]] == ["undecodable_image"] * 10
    for index, expected in alone.items():
        for answer in answers[index::4]:
            assert (answer["width"], answer["height"]) == (200, 120)
            scores = [found["score"] for found in answer["detections"]]
            assert scores == pytest.approx(expected.scores.tolist(), rel=1e-4)
    labels = 'model="face_detector",model_version="1",route="/v1/detect",status="200"'
    answered = f"lensbox_requests_total{{{labels}}}"
    boxes = {"predictions": [[[0, 0, 1, 1], [0, 0, 2, 2]], []], "targets": [[[0, 0, 1, 1]], []]}
    for _ in range(4):  # whichever front end answers
        loss = ask(f"{url}/v1/loss", "POST", json={**boxes, "gradient": True}).json()
        assert (loss["loss"], [len(image) for image in loss["gradient"]]) == (0, [2, 0])
        assert request("GET", f"{url}/v2").status_code == 401
        wait_until(lambda: _value(url, answered) == 30)  # the sum over both


def _files(pid: int) -> list[str]:
    """Return what the open files of a process are."""
    return [str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()]


def test_no_process_has_files_or_keys_of_others(process: ServeProcess, url: str) -> None:
    """Else the port would stay open during a shutdown, and unloaded models would stay in memory."""
    wait_until(lambda: _all_run(process))
    process.ready()
    supervisor, workers = process.process.pid, process.workers()
    port = f"{int(url.rpartition(':')[2]):04X}"
    connections = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    (listener,) = (f"socket:[{row[9]}]" for row in connections if row[1].endswith(port) and row[3] == "0A")
    model = "/memfd:lensbox-artifact (deleted)"
    for kind, has_listener in (("engines", False), ("frontends", True)):
        for pid in workers[kind]:
            files = _files(pid)
            assert ((listener in files), files.count(model)) == (has_listener, not has_listener)
            assert not [file for file in files if "lensbox-service-" in file and ".db" not in file]  # locks
    assert {listener, model} <= {*_files(supervisor)}
    for pid in (supervisor, *workers["engines"], *workers["frontends"]):
        variables = read_process(pid, "environ")
        assert "OMP_DISPLAY_ENV=true" in variables
        assert "LENSBOX_API_KEYS=" in variables  # without its value
        assert KEY not in variables
    # Beside the main thread there is the log's. A thread of OpenMP would be missing in forked processes.
    assert len(list(Path(f"/proc/{supervisor}/task").iterdir())) == 2


@pytest.mark.parametrize(
    ("kind", "answers"), [("engines", {"200", "503"}), ("frontends", {"200", "503", "broken"})]
)
def test_a_killed_process_is_replaced(
    kind: str, answers: set[str], process: ServeProcess, url: str, png: bytes
) -> None:
    """Nothing hangs, and no other process ends: a request whose engine was killed gets 503."""
    wait_until(lambda: _all_run(process))
    with asking(url, lambda _: _detect(url, png)) as statuses:
        running, restarts = process.workers(), _value(url, "lensbox_restarts_total")
        killed = running.pop(kind)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: _all_run(process) and not set(process.workers()[kind]) & set(killed))
        process.ready()
        before = len(statuses)
        wait_until(lambda: statuses[before:].count("200") > 10)
    assert set(statuses) <= answers
    assert running.items() <= process.workers().items()
    assert "is restarted" in process.log
    assert "Traceback" not in process.log
    wait_until(lambda: _value(url, "lensbox_restarts_total") >= restarts + len(killed))


def test_sigterm_refuses_connections_and_answers_accepted_requests(
    process: ServeProcess, url: str, png: bytes
) -> None:
    wait_until(lambda: _all_run(process))
    running = [pid for pids in process.workers().values() for pid in pids]
    head = "POST /v1/detect HTTP/1.1\r\nHost: x\r\n"
    head += f"Authorization: Bearer {KEY}\r\nContent-Length: {len(png)}\r\n"
    with asking(url, lambda _: _detect(url, png)) as statuses, connect(url) as client:
        client.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        go_on = b"HTTP/1.1 100 Continue\r\n\r\n"  # the request is admitted
        assert client.recv(len(go_on), socket.MSG_WAITALL) == go_on
        client.sendall(png[:100])
        process.process.send_signal(signal.SIGTERM)
        wait_until(lambda: refuses(url))
        assert process.process.poll() is None
        client.sendall(png[100:])
        assert client.recv(12) == b"HTTP/1.1 200"
        assert process.process.wait(PATIENCE) == 0
    assert set(statuses) <= {"200", "refused"}  # also connections that waited to be accepted
    wait_until(lambda: _all_ended(running))  # killed processes take a moment to end
    assert "Traceback" not in process.log


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.exhaustive)]
)
def test_a_second_signal_or_killed_supervisor_ends_all_processes(
    artifact_path: Path, number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first one, /readyz answers 503 for a while, and killed engines are replaced."""
    limits = with_limits(shutdown_delay=3600, shutdown_timeout=36_000)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with ServeProcess(artifact_path, "--frontends", "1", before=limits) as process:
        url = process.ready()
        running = [pid for pids in process.workers().values() for pid in pids]
        assert len(running) == 2
        process.process.send_signal(signal.SIGTERM)
        wait_until(lambda: request("GET", f"{url}/readyz").status_code == 503)
        no_boxes: dict[str, Any] = {"predictions": [], "targets": []}
        assert request("POST", f"{url}/v1/loss", json=no_boxes).status_code == 200
        os.kill(process.workers()["engines"][0], signal.SIGKILL)
        wait_until(lambda: request("POST", f"{url}/v1/loss", json=no_boxes).status_code == 200)
        running += [pid for pids in process.workers().values() for pid in pids]
        found = re.search(r"/\S+/lensbox-service-\w+", read_process(process.process.pid, "maps"))
        assert found is not None
        folders = [Path(found[0]), *tmp_path.iterdir()]
        assert process.end(number) in (128 + signal.SIGINT, -number)
        wait_until(lambda: _all_ended(running))
        for folder in folders:  # no process has their locks
            os.utime(folder, (0, 0))
            with service_folder(str(folder.parent)):
                assert not folder.exists()


_FULL_PIPE = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as some callers do
reader, writer = os.pipe()
os.set_blocking(writer, False)
try:
    while True:
        os.write(writer, bytes(1 << 12))
except BlockingIOError:
    os.set_blocking(writer, True)
os.dup2(writer, 2)
"""


@pytest.mark.parametrize("is_open", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_processes_are_replaced_while_nobody_reads_the_log(artifact_path: Path, is_open: bool) -> None:
    """The pipe of the log is full, or has lost its reader: no fork waits for a lock or a stream."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url, options = (
        f"http://127.0.0.1:{port}",
        ("--frontends", "1", "--port", str(port), "--log-level", "debug"),
    )
    before = _FULL_PIPE if is_open else f"{_FULL_PIPE}os.close(reader)"

    def is_ready() -> bool:
        with contextlib.suppress(httpx.TransportError):
            return request("GET", f"{url}/readyz").status_code == 200
        return False

    with ServeProcess(artifact_path, *options, before=before) as process:
        wait_until(is_ready)
        for kind in ("engines", "frontends") * 2:
            (killed,) = process.workers()[kind]
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda pid=killed: _state(pid) == "X" and is_ready())  # type: ignore[misc]
        assert process.end(signal.SIGTERM) == 0


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["auto", "all"])
def test_only_engines_use_the_gpu(artifact_path: Path, device: str) -> None:
    """A process cannot use CUDA whose parent has begun to use it."""
    with ServeProcess(artifact_path, "--device", device) as process:
        url = process.ready()
        assert request("GET", f"{url}/v1/model").json()["service"]["device"].startswith("cuda")
        workers = process.workers()
        for pid in (process.process.pid, *workers["frontends"], *workers["engines"]):
            uses = any(file.startswith("/dev/nvidia") for file in _files(pid))
            assert uses == (pid in workers["engines"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("moment", ["imports", "engines"])
def test_ctrl_c_while_loading_exits_with_0(artifact_path: Path, moment: str) -> None:
    """Ctrl-C reaches all processes of the terminal's job."""
    with ServeProcess(artifact_path, "--frontends", "1") as process:
        pid = process.process.pid
        wait_until(
            lambda: (
                "libtorch" in read_process(pid, "maps")
                if moment == "imports"
                else bool(process.workers()[moment])
            )
        )
        os.killpg(process.process.pid, signal.SIGINT)
        assert process.process.wait(PATIENCE) == 0, process.log
        process.thread.join(PATIENCE)
        assert "Traceback" not in process.log


@pytest.mark.exhaustive
def test_stuck_processes_are_replaced(artifact_path: Path, png: bytes) -> None:
    sooner = "from lensbox.serve.processes import group\nfrom lensbox.serve.processes import supervisor\n"
    # Long enough for a busy machine: what only waits for its turn is not replaced.
    sooner += "supervisor.SILENCE, group.ENGINE_SILENCE = 10.0, 5.0\n"
    options = ("--frontends", "1", "--answer-timeout", "2")
    with ServeProcess(artifact_path, *options, before=sooner + with_limits(engine_timeout=10)) as process:
        url = process.ready()
        for kind, name in (
            ("frontends", "front end 1"),
            ("engines", "the engine of face_detector version 1 on cpu"),
        ):
            (stuck,) = process.workers()[kind]
            with httpx.Client(base_url=url, timeout=PATIENCE) as client:
                assert client.get("/healthz").status_code == 200
                os.kill(stuck, signal.SIGSTOP)
                wait_until(lambda pid=stuck: _state(pid) == "T")  # type: ignore[misc]
                # No request hangs.
                with contextlib.suppress(httpx.TransportError):
                    assert client.post("/v1/detect", content=png).status_code in (503, 504)
            wait_until(lambda pid=stuck: _state(pid) in "ZX")  # type: ignore[misc]
            process.ready()
            for event in ("had no heartbeat for", "ended with SIGKILL and is restarted"):
                wait_until(lambda said=f"{name} {event}": said in process.log)  # type: ignore[misc]
        wait_until(lambda: _detect(url, png) == "200")
        assert process.end(signal.SIGTERM) == 0
