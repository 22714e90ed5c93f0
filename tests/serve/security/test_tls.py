"""HTTPS with a certificate that the test makes, and what is said of one that cannot be used."""

import contextlib
import datetime
import ipaddress
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from serve_process import PATIENCE, ServeProcess


def _write_certificate(folder: Path, password: bytes | None = None) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lensbox")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(exist_ok=True)
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return folder / "certificate.pem", folder / "key.pem"


def _options(certificate: Path, key: Path) -> list[str]:
    return ["--tls-certificate", str(certificate), "--tls-key", str(key)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return _write_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module", params=["0", "2"])
def process(
    request: pytest.FixtureRequest, artifact_path: Path, files: tuple[Path, Path]
) -> Iterator[ServeProcess]:
    process = ServeProcess(
        artifact_path, *_options(*files), "--frontends", request.param, "--header-timeout", "1"
    )
    yield process
    process.close()


@pytest.fixture
def client(
    process: ServeProcess, files: tuple[Path, Path], wait_until: Callable[..., None]
) -> Iterator[httpx.Client]:
    wait_until(lambda: process.url() is not None)
    context = ssl.create_default_context(cafile=files[0])
    with httpx.Client(base_url=process.url() or "", verify=context, timeout=PATIENCE) as client:

        def is_ready() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return client.get("/readyz").status_code == 200
            return False

        wait_until(is_ready)
        yield client


def test_answers_come_over_tls(process: ServeProcess, client: httpx.Client, png: bytes) -> None:
    assert (process.url() or "").startswith("https://127.0.0.1:")
    for _ in range(3):
        assert client.post("/v1/detect", content=png).status_code == 200
    with pytest.raises(httpx.ConnectError, match=r"self.signed"):
        httpx.get(f"{process.url()}/healthz")
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{process.url()}/healthz".replace("https", "http"))


def test_a_client_that_does_not_go_on_is_cut_off(process: ServeProcess, client: httpx.Client) -> None:
    host, port = (process.url() or "").removeprefix("https://").split(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        silent = stack.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE))
        slow = stack.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE))
        slow = stack.enter_context(context.wrap_socket(slow))
        slow.sendall(b"GET / HTTP/1.1\r\nHost:")
        for connection in (silent, slow):
            with contextlib.suppress(ConnectionResetError, ssl.SSLEOFError):
                assert connection.recv(1) == b""
    assert time.monotonic() - start < 30  # asyncio alone gives a handshake a minute
    assert client.get("/healthz").status_code == 200


def test_the_end_does_not_wait_for_a_client_s_goodbye(
    process: ServeProcess, client: httpx.Client, png: bytes
) -> None:
    assert client.post("/v1/detect", content=png).status_code == 200  # its connection stays open, and silent
    start = time.monotonic()
    assert process.end(signal.SIGTERM) == 0
    assert time.monotonic() - start < 20  # of the 30 that there are
    assert "Traceback" not in process.log


@pytest.mark.parametrize("kind", ["other key", "password", "no file", "no certificate"])
def test_what_cannot_be_used_is_one_message(
    kind: str, tmp_path: Path, files: tuple[Path, Path], artifact_path: Path
) -> None:
    certificate, key = files
    if kind == "other key":
        key = _write_certificate(tmp_path / "other")[1]
    elif kind == "password":
        certificate, key = _write_certificate(tmp_path / "locked", b"secret")
    elif kind == "no file":
        certificate = tmp_path / "nothing.pem"
    else:
        certificate = artifact_path
    process = ServeProcess(artifact_path, *_options(certificate, key))
    try:
        assert process.process.wait(PATIENCE) == 3
        process.thread.join(PATIENCE)
        assert process.lines[-1].startswith(
            f"lensbox serve: cannot start: tls_certificate {certificate} and tls_key {key} must be PEM files"
        )
        assert "Traceback" not in process.log
    finally:
        process.close()
