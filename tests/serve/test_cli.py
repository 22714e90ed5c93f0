"""`lensbox serve` as a process: what it answers, how it ends, and how it refuses to start."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from serve_process import PATIENCE, SERVE_COMMAND, ServeProcess

from lensbox.common.errors import ExitCode
from lensbox.common.main import main
from lensbox.runtime.artifact import Artifact
from lensbox.serve.cli import GROUPS, serve


@pytest.fixture(scope="module")
def process(artifact_path: Path) -> Iterator[ServeProcess]:
    process = ServeProcess(artifact_path, "--max-pixels", "1000000")
    yield process
    process.close()


@pytest.fixture(scope="module")
def client(process: ServeProcess, wait_until: Callable[..., None]) -> Iterator[httpx.Client]:
    """A client of the process, once that is ready."""
    wait_until(lambda: process.url() is not None)
    with httpx.Client(base_url=process.url() or "", timeout=PATIENCE) as client:
        wait_until(lambda: process.url() is not None and client.get("/readyz").status_code == 200)
        yield client


def test_the_process_answers_like_the_artifact(
    client: httpx.Client, artifact: Artifact, encode: Callable[..., bytes]
) -> None:
    file = encode("JPEG")
    found = artifact.detect_image(artifact.read_photo(file))
    expected = [
        {"box": box, "score": score}
        for box, score in zip(found.boxes.tolist(), found.scores.tolist(), strict=True)
    ]
    assert expected
    requests: list[dict[str, Any]] = [
        {"content": file},
        *(
            {"content": file, "headers": {"Content-Type": kind}}
            for kind in ("", "image/jpeg", "a/b", "nonsense")
        ),
        {"files": {"image": ("photo.jpg", file, "image/jpeg")}},
        {"files": {"file": file}},
        {"content": iter([file[:100], file[100:]])},
    ]
    for request in requests:
        response = client.post("/v1/detect", **request)
        assert response.status_code == 200, (request, response.text)
        assert response.json() == {"width": 200, "height": 120, "detections": expected}
    boxes, targets = [[0, 0, 10, 10], [5, 5, 9, 9]], [[2, 0, 10, 11], [0, 0, 0, 0]]
    response = client.post("/v1/loss", json={"predictions": boxes, "targets": targets})
    loss = artifact.loss(torch.tensor(boxes, dtype=torch.float64), torch.tensor(targets, dtype=torch.float64))
    assert response.json() == {"loss": loss, "slots": 1}


def test_nothing_that_a_client_sends_ends_the_process(
    client: httpx.Client, process: ServeProcess, png: bytes, empty_png: Callable[[int, int], bytes]
) -> None:
    bad_images = [
        b"",
        os.urandom(100_000),
        png[:-100],
        empty_png(2**31 - 1, 2**31 - 1),
        bytes((16 << 20) + 1),
    ]
    for content in bad_images:
        assert client.post("/v1/detect", content=content).status_code in (400, 413)
    for content in [b"", b"{", b"[" * 1_000_000, b'{"predictions": NaN, "targets": []}', os.urandom(1000)]:
        assert client.post("/v1/loss", content=content).status_code in (400, 422)
    for ragged in ([[0, 0, 1, 1], [0, 0, 1]], [[[0, 0, 1, 1]], 1], [1, [2]], {"a": 1}):
        response = client.post("/v1/loss", json={"predictions": ragged, "targets": ragged})
        assert response.status_code == 422
    for raw in (b"\x16\x03\x01 no HTTP\r\n\r\n", b"POST /v1/detect HTTP/1.1\r\nContent-Length: -5\r\n\r\n"):
        host, port = client.base_url.host, client.base_url.port
        assert port is not None
        with socket.create_connection((host, port), PATIENCE) as connection:
            connection.sendall(raw)
            assert connection.recv(100).startswith(b"HTTP/1.1 400 ")
    assert client.get("/readyz").status_code == 200
    assert "Traceback" not in process.log


def test_sigterm_ends_the_process_in_order(client: httpx.Client, process: ServeProcess) -> None:
    assert client.get("/healthz").status_code == 200  # with an idle connection, which must not delay the end
    assert process.end(signal.SIGTERM) == 0
    assert "ready: " in process.log
    assert "Traceback" not in process.log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_load(
    artifact_path: Path, wait_until: Callable[..., None], number: signal.Signals
) -> None:
    process = ServeProcess(artifact_path)
    try:
        wait_until(lambda: process.url() is not None)
        assert process.end(number) == 0
        assert "Traceback" not in process.log
    finally:
        process.close()


def test_lines_of_a_text_log_begin_with_their_time(
    artifact_path: Path, wait_until: Callable[..., None]
) -> None:
    process = ServeProcess(artifact_path)
    try:
        wait_until(lambda: "ready: " in process.log)
    finally:
        process.close()
    assert process.lines
    for line in process.lines:
        assert re.match(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+: ", line), line


def test_every_line_of_a_json_log_is_an_object(artifact_path: Path, wait_until: Callable[..., None]) -> None:
    process = ServeProcess(artifact_path, "--log-format", "json")
    try:
        wait_until(lambda: process.url() is not None and "ready: " in process.log)
        assert httpx.get(f"{process.url()}/v1/model").status_code == 200
        assert process.end(signal.SIGTERM) == 0
    finally:
        process.close()
    entries = [json.loads(line) for line in process.lines]
    assert {"lensbox.serve.http.server", "lensbox.serve.access", "uvicorn.error"} <= {
        entry["logger"] for entry in entries
    }


def _refusal(*options: str, **environment: str) -> str:
    """Return the message of `lensbox serve` when it exits with 3."""
    result = subprocess.run(
        [*SERVE_COMMAND, "--port", "0", "--log-level", "critical", *options],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert result.returncode == 3, result.stderr
    assert result.stderr.startswith("lensbox serve: cannot start: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_a_missing_artifact(tmp_path: Path) -> None:
    message = _refusal("--artifact", str(tmp_path / "nothing.pt"))
    assert f"there is no file nothing.pt in {tmp_path}; `lensbox export` writes one" in message


def test_a_missing_op_library(artifact_path: Path, tmp_path: Path) -> None:
    library = str(tmp_path / "missing.so")
    message = _refusal("--artifact", str(artifact_path), LENSBOX_OPS_LIBRARY=library)
    assert f"op library was not found. Looked at: {library}. To mend it, " in message


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_missing_gpu(artifact_path: Path) -> None:
    assert "got 'cuda' with torch" in _refusal("--artifact", str(artifact_path), "--device", "cuda")
    assert "got 'cuda:1' with torch" in _refusal("--artifact", str(artifact_path), "--device", "cuda:1")


def test_a_port_in_use(artifact_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        message = _refusal("--artifact", str(artifact_path), "--port", port)
    assert f"127.0.0.1 port {port} cannot be listened on: " in message
    assert "--port chooses another" in message


def test_a_variable_that_nothing_reads(artifact_path: Path) -> None:
    options = ["--device", "cuda:9", "--log-level", "warning", "--log-format", "json"]
    result = subprocess.run(
        [*SERVE_COMMAND, "--port", "0", "--artifact", str(artifact_path), *options],
        env={**os.environ, "LENSBOX_PORT": "9000"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    entry = json.loads(result.stderr.splitlines()[0])
    assert entry["level"] == "warning"
    assert entry["message"].startswith("the environment variable LENSBOX_PORT has no effect")


def test_help_shows_each_option_in_one_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    text = capsys.readouterr().out
    headings = re.findall(r"^(\w[\w ]*):$", text, re.MULTILINE)
    assert headings == [*GROUPS, "Help"]
    options = re.findall(r"^  (?:-h, )?(--[a-z-]+)", text, re.MULTILINE)
    given = {option for parameter in serve.params for option in parameter.opts} | {"--help"}
    assert sorted(options) == sorted(given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--queue-size", "0"], "--queue-size must be at least 1, got 0"),
        (["--body-timeout", "nan"], "--body-timeout must be above 0 and at most 86400, got nan"),
        (["--max-body-mb", "inf"], "'--max-body-mb': must be above 0 and at most 1048576 MiB, got inf"),
        (["--max-body-mb", "much"], "'--max-body-mb': must be a number of MiB, got much"),
        (["--device", "tpu"], "'--device': 'tpu' is not one of 'auto', 'cpu', 'cuda'"),
        (["--port"], "'--port' requires an argument"),
        (["--port", "99999"], "'--port': 99999 is not in the range 0<=x<=65535"),
        (["--port", "-1"], "'--port': -1 is not in the range 0<=x<=65535"),
        (["--threads", "1000000000"], "--threads must be at most 1024, got 1000000000"),
        (["--shutdown-timeout", "99999999999"], "--shutdown-timeout must be at most 86400, got 99999999999"),
        (["--tls-key", "a.pem"], "--tls-certificate and --tls-key must come together, got --tls-key alone"),
        (["--max-connections", "0"], "--max-connections must be at least 1, got 0"),
    ],
)
def test_wrong_options_are_usage_errors(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *options]) == ExitCode.USAGE
    assert message in capsys.readouterr().err
