"""`lensbox serve` as a process: answers, shutdown, and start-up errors."""

import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from deployed import settings_of
from serve_process import ServeProcess
from waiting import PATIENCE

from lensbox.cli.main import main
from lensbox.common.errors import ExitCode
from lensbox.serve.cli import listen
from lensbox.serve.observability.logs import LogStyle
from lensbox.serve.settings import options


def test_sigterm_ends_the_process_in_order(artifact_path: Path) -> None:
    with (
        ServeProcess(artifact_path) as process,
        httpx.Client(base_url=process.ready(), timeout=PATIENCE) as client,
    ):
        assert client.get("/healthz").status_code == 200  # an idle connection must not delay the shutdown
        assert process.end(signal.SIGTERM) == 0
    assert "ready: " in process.log
    assert "Traceback" not in process.log
    for line in process.lines:
        assert re.match(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+: ", line), line


_without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
_ONE_FRONT_END = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux' shared memory")


@pytest.fixture
def places(artifact_path: Path, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A good artifact, a folder with files that are none, and a port that is taken."""
    (tmp_path / "noise.pt").write_bytes(b"noise" * 100)
    (tmp_path / "cut.pt").write_bytes(artifact_path.read_bytes()[:1000])
    torch.save({"a": torch.zeros(1)}, tmp_path / "saved.pt")
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield {"tmp": tmp_path, "port": other.getsockname()[1], "good": artifact_path}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--artifact {tmp}/nothing.pt", "there is no file nothing.pt in {tmp}; "),
        ("--artifact {tmp}", "artifact must be a file, got the folder {tmp}; --models takes"),
        ("--artifact {tmp}/noise.pt", "artifact must be a file that `lensbox export` wrote, got {tmp}/noise"),
        # Refused before the service listens, which would fail, too.
        ("--artifact {tmp}/saved.pt --port {port}", "{tmp}/saved.pt must be a TorchScript file"),
        ("--artifact {good} --port {port}", "cannot listen on 127.0.0.1 port {port}: "),
    ],
)
def test_refuses_what_it_sees_at_once(
    options: str, message: str, places: dict[str, Any], monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr(LogStyle, "start", lambda _: None)  # would take pytest's handlers away
    assert main(["serve", *options.format_map(places).split()]) == ExitCode.UNUSABLE
    assert f"cannot start: {message.format_map(places)}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--api-keys-file {tmp}/nothing", "{tmp}/nothing cannot be read: No such file or directory"),
        ("--tls-certificate {tmp}/noise.pt --tls-key {tmp}/noise.pt", "--tls-key cannot be used: [SSL"),
        pytest.param("--device cuda:1", "got 'cuda:1' with torch", marks=_without_gpu),
        pytest.param("--frontends 1 --artifact {tmp}/cut.pt", "{tmp}/cut.pt", marks=_ONE_FRONT_END),
        ("--artifact {tmp}/cut.pt", "{tmp}/cut.pt"),
    ],
)
def test_refuses_to_start_with_one_message(
    artifact_path: Path, places: dict[str, Any], options: str, message: str
) -> None:
    given = options.format_map(places).split()
    artifact = None if "--artifact" in given else artifact_path
    with ServeProcess(artifact, "--log-level", "critical", *given) as process:
        assert message.format_map(places) in process.refusal()
    assert len(process.lines) == 1


def test_help_shows_each_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    shown = re.findall(r"^  (?:-h, )?(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE)
    assert shown == [*("--" + name.replace("_", "-") for name in options()), "--help"]


def test_variables_stand_for_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PORT": "9000", "MAX_BODY_MB": "0.5", "WATCH": "1", "SWAP": "in-place"}.items():
        monkeypatch.setenv(f"LENSBOX_{name}", value)
    settings = settings_of(["--models", "folder", "--port", "9001"])
    assert (settings.port, settings.max_body_bytes, settings.watch) == (9001, 1 << 19, True)
    assert (settings.swap, settings.artifact, settings.models) == ("in-place", None, Path("folder"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--answer-timeout nan", "--answer-timeout must be less than or equal to 86400, got NaN"),
        ("--max-body-mb inf", "--max-body-mb must be less than or equal to 1048576, got Infinity"),
        ("--device tpu", "--device must be auto, cpu, cuda or cuda:N"),
        ("--tls-key a.pem", "--tls-key must be given together, got only --tls-key"),
        ("--artifact a.pt --artifact b.pt", "--models DIR serves several models"),
        ("--artifact a.pt --models b", "--artifact or models must be given, got both"),
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


def test_the_listener_has_the_protocol_for_which_asyncio_sets_tcp_nodelay() -> None:
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
