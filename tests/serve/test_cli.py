"""Options of `lensbox serve`, and errors at its start."""

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import write_certificate
from serve_process import ServeProcess
from services import settings_of
from waiting import PATIENCE

from lensbox.cli.main import main
from lensbox.common.errors import ExitCode
from lensbox.serve.cli import listen, serve
from lensbox.serve.settings import options


@pytest.fixture
def places(artifact_path: Path, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A good artifact, a folder with files that are none, and a port that is taken."""
    (tmp_path / "noise.pt").write_bytes(b"noise" * 100)
    (tmp_path / "cut.pt").write_bytes(artifact_path.read_bytes()[:1000])
    write_certificate(tmp_path / "locked.pem", b"secret")
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield {"tmp": tmp_path, "port": other.getsockname()[1], "good": artifact_path}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--artifact {tmp}/nothing.pt", "there is no file nothing.pt in {tmp}; "),
        ("--artifact {tmp}", "--artifact must be a file, got the folder {tmp}; --models takes"),
        ("--artifact {good} --port {port}", "cannot listen on 127.0.0.1 port {port}: "),
        (
            "--artifact {good} --port 0 --api-keys-file {tmp}/nothing",
            "--api-keys-file {tmp}/nothing cannot be read: No such file or directory",
        ),
        (
            "--artifact {good} --port 0 --tls-certificate {tmp}/noise.pt --tls-key {tmp}/noise.pt",
            "--tls-certificate and --tls-key cannot be used: [SSL",
        ),
        (
            "--artifact {good} --port 0 --tls-certificate {tmp}/locked.pem --tls-key {tmp}/locked.pem",
            "--tls-certificate and --tls-key cannot be used: the key must have no password",
        ),
    ],
)
def test_refuses_what_it_sees_at_once(
    options: str, message: str, places: dict[str, Any], monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr("lensbox.serve.cli.start_log", lambda *_: None)  # would take pytest's handlers away
    monkeypatch.setattr("lensbox.serve.cli.Shutdown", lambda _: None)  # and signals
    monkeypatch.setattr("lensbox.serve.cli.end_process", ExitCode)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    assert main(["serve", *options.format_map(places).split()]) == ExitCode.UNUSABLE
    assert f"cannot start: {message.format_map(places)}" in capsys.readouterr().err


def test_refuses_a_damaged_file_with_one_message(places: dict[str, Any]) -> None:
    """`tests/examples/test_custom_op.py` has engines in processes of their own."""
    damaged = places["tmp"] / "cut.pt"
    with ServeProcess(damaged, "--log-level", "critical") as process:
        assert str(damaged) in process.refusal()
    assert len(process.lines) == 1


def test_refuses_a_device_that_is_not_there(artifact_path: Path) -> None:
    with ServeProcess(artifact_path, "--device", "cuda:63") as process:
        assert "cannot start: --device must be usable, got 'cuda:63'" in process.refusal()


def test_refuses_an_installation_that_cannot_be_imported(artifact_path: Path) -> None:
    before = """
import sys
class Broken:
    def find_spec(self, name, *_):
        if name == "uvloop":
            raise ImportError("libuv.so.1: cannot open shared object file")
sys.meta_path.insert(0, Broken())
"""
    with ServeProcess(artifact_path, before=before) as process:
        assert "cannot import what the service needs: libuv.so.1: cannot open" in process.refusal()


def test_help_shows_each_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    shown = re.findall(r"^  (?:-h, )?(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE)
    assert shown == [*("--" + name.replace("_", "-") for name in options()), "--help"]


def test_variables_stand_for_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PORT": "9000", "MAX_BODY_MB": "0.5", "MODELS": "other"}.items():
        monkeypatch.setenv(f"LENSBOX_{name}", value)
    settings = settings_of(["--models", "folder", "--port", "9001"])
    assert (settings.port, settings.max_body_bytes) == (9001, 1 << 19)
    assert (settings.artifact, settings.models) == (None, Path("folder"))


def test_tells_of_variables_that_stand_for_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Service of Kubernetes with the name lensbox sets the second and third one."""
    for name in [name for name in os.environ if name.startswith("LENSBOX_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LENSBOX_MAX_BACTH", "9")
    monkeypatch.setenv("LENSBOX_PORT", "tcp://10.0.0.9:8000")
    monkeypatch.setenv("LENSBOX_PORT_8000_TCP_ADDR", "10.0.0.9")
    monkeypatch.setenv("LENSBOX_SERVICE_PORT_HTTP", "8000")
    context = serve.make_context("serve", [])
    assert (context.params["port"], context.params["max_batch"]) == (8000, None)
    told = context.meta["lensbox.warnings"]
    assert len(told) == 2
    assert "LENSBOX_PORT=tcp://10.0.0.9:8000 is a service link of Kubernetes and is ignored" in told[0]
    assert "LENSBOX_MAX_BACTH stands for no option and is ignored; did you mean LENSBOX_MAX_BATCH?" in told[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--answer-timeout nan", "--answer-timeout must be less than or equal to 86400, got NaN"),
        ("--tls-key a.pem", "--tls-key must be given together, got only --tls-key"),
        ("--artifact a.pt --artifact b.pt", "--models DIR serves several models"),
    ],
)
def test_wrong_options_are_usage_errors(
    options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *options.split()]) == ExitCode.USAGE
    assert message in capsys.readouterr().err


def test_the_ipv6_wildcard_accepts_ipv4() -> None:
    try:
        listener = listen("::", 0)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with listener:
        port = listener.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), timeout=PATIENCE).close()
