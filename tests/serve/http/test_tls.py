"""HTTPS with a self-signed certificate, and messages about unusable certificates."""

import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from serve_process import ServeProcess
from waiting import PATIENCE


def write_certificate(folder: Path, *options: str) -> tuple[Path, Path]:
    """Write a certificate of 127.0.0.1, signed by itself, and its key. options: of the key's file."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -days 2 -subj /CN=localhost"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    folder.mkdir(exist_ok=True)
    subprocess.run([*command.split(), *files, *options], check=True, capture_output=True)
    return certificate, key


def _options(certificate: Path, key: Path) -> list[str]:
    return ["--tls-certificate", str(certificate), "--tls-key", str(key)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_certificate(tmp_path_factory.mktemp("tls"), "-nodes")


@pytest.fixture(scope="module", params=["0", "2"])
def process(
    request: pytest.FixtureRequest, artifact_path: Path, files: tuple[Path, Path]
) -> Iterator[ServeProcess]:
    options = ("--frontends", request.param, "--shutdown-timeout", "20")
    with ServeProcess(artifact_path, *_options(*files), *options) as process:
        yield process


@pytest.fixture
def client(process: ServeProcess, files: tuple[Path, Path]) -> Iterator[httpx.Client]:
    context = ssl.create_default_context(cafile=files[0])
    with httpx.Client(base_url=process.ready(context), verify=context, timeout=PATIENCE) as client:
        yield client


def test_answers_come_over_tls(process: ServeProcess, client: httpx.Client, png: bytes) -> None:
    assert (process.url() or "").startswith("https://127.0.0.1:")
    for _ in range(3):
        assert client.post("/v1/detect", content=png).status_code == 200
    with pytest.raises(httpx.ConnectError, match=r"self.signed"):
        httpx.get(f"{process.url()}/healthz")
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{process.url()}/healthz".replace("https", "http"))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio of Python 3.10 waits for the TLS goodbye")
def test_a_client_without_tls_closing_handshake_does_not_delay_shutdown(
    process: ServeProcess, client: httpx.Client, png: bytes
) -> None:
    assert client.post("/v1/detect", content=png).status_code == 200  # its connection stays open, and silent
    assert process.end(signal.SIGTERM) == 0
    assert "timeout graceful shutdown exceeded" not in process.log
    assert "Traceback" not in process.log


@pytest.mark.parametrize("kind", ["other key", "password", "no file", "no certificate"])
def test_rejects_unusable_tls_files_with_one_message(
    kind: str, tmp_path: Path, files: tuple[Path, Path], artifact_path: Path
) -> None:
    certificate, key = files
    if kind == "other key":
        key = write_certificate(tmp_path / "other", "-nodes")[1]
    elif kind == "password":
        certificate, key = write_certificate(tmp_path / "locked", "-passout", "pass:secret")
    elif kind == "no file":
        certificate = tmp_path / "nothing.pem"
    else:
        certificate = artifact_path
    with ServeProcess(artifact_path, *_options(certificate, key)) as process:
        message = f"--tls-certificate {certificate} and --tls-key {key} must be PEM files"
        assert process.refusal().startswith(f"lensbox serve: cannot start: {message}")
