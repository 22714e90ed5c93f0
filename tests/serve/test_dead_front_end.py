"""A front end that dies: its connections end at once, all others go on, and a fresh one takes its place."""

import contextlib
import os
import re
import select
import signal
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from serve_process import PATIENCE, ServeProcess

from lensbox.serve.processes.pulse import Pulse

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux' shared memory")


@pytest.fixture
def process(artifact_path: Path) -> Iterator[ServeProcess]:
    # Time for bodies that arrive while a busy machine looks for who has which connection.
    process = ServeProcess(artifact_path, "--frontends", "2", "--body-timeout", "300")
    yield process
    process.close()


@pytest.fixture
def url(process: ServeProcess, wait_until: Callable[..., None]) -> str:
    wait_until(lambda: process.url() is not None)
    url = process.url() or ""
    wait_until(lambda: _is_ready(url))
    return url


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=PATIENCE).status_code == 200
    except httpx.TransportError:
        return False


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


def test_others_go_on(process: ServeProcess, url: str, png: bytes, wait_until: Callable[..., None]) -> None:
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


def test_one_that_stands_still_is_replaced(artifact_path: Path, wait_until: Callable[..., None]) -> None:
    sooner = "import lensbox.serve.processes.supervisor as supervisor\nsupervisor._SILENCE = 3.0"
    process = ServeProcess(artifact_path, "--frontends", "1", before=sooner)
    try:
        wait_until(lambda: process.url() is not None)
        url = process.url() or ""
        wait_until(lambda: _is_ready(url))
        with httpx.Client(base_url=url, timeout=PATIENCE) as client:
            assert client.get("/healthz").status_code == 200
            (owner,) = set(_owners(int(url.rpartition(":")[2])).values())
            os.kill(owner, signal.SIGSTOP)
            with pytest.raises(httpx.TransportError):  # and not for ever
                client.get("/healthz")
        wait_until(lambda: _is_ready(url))
        assert "front end 1 has not moved for 3 s and is killed" in process.log
        assert process.end(signal.SIGTERM) == 0
    finally:
        process.close()


def test_who_slept_itself_does_not_blame_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pulse = Pulse()
    now = 100.0
    assert pulse.silence() == 0  # not begun
    pulse.beat()
    assert pulse.silence() == 0
    for look in range(1, 11):
        now += 0.1
        assert pulse.silence() == pytest.approx(0.1 * look)
    now += 1000.0
    assert pulse.silence() < 2
    pulse.beat()
    assert pulse.silence() == 0


def test_the_next_process_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is as quick as the first, and has beaten as often when it is looked at again."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pulse = Pulse()
    pulse.beat()
    pulse.silence()
    for _ in range(10):
        now += 0.4
        pulse.silence()
    assert pulse.silence() == pytest.approx(4)
    pulse.reset()
    pulse.beat()
    now += 0.1
    assert pulse.silence() == 0
