"""Connections of clients: how they are set up, how many there may be, which give way."""

import asyncio
import contextlib
import errno
import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from serve_process import PATIENCE, ServeProcess

from lensbox.serve import connections
from lensbox.serve.connections import allow_files, connection_class, warn_when_out_of_files
from lensbox.serve.listener import listen
from lensbox.serve.server import _Server

# For good: a process may not raise its hard limit again.
_FEW_FILES = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))"


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    """Answers once the body, if any, has come."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


class Client:
    """One connection."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE)

    def ask(self) -> None:
        self.socket.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert self.socket.recv(4096).startswith(b"HTTP/1.1 204 ")

    def begin(self) -> None:
        """Sends a request without its body, and waits until the server has read it."""
        self.socket.sendall(
            b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"
        )
        assert self.socket.recv(4096).startswith(b"HTTP/1.1 100 ")

    def finish(self) -> None:
        self.socket.sendall(b"x")
        assert self.socket.recv(4096).startswith(b"HTTP/1.1 204 ")

    def wait_for_the_end(self) -> None:
        assert self.socket.recv(1) == b""


@pytest.fixture
def connect(url_of_server: Callable[[uvicorn.Config], str]) -> Iterator[Callable[[], Client]]:
    """Connects to a server that keeps three connections."""
    url = url_of_server(
        uvicorn.Config(_answer, lifespan="off", http=connection_class(3), log_level="critical")
    )
    with contextlib.ExitStack() as stack:

        def connect() -> Client:
            client = Client(url)
            stack.enter_context(client.socket)
            return client

        yield connect


def test_the_longest_idle_connection_gives_way(
    connect: Callable[[], Client], caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = connect(), connect(), connect()
    for client in (second, third, first):  # the second is now idle for the longest time
        client.ask()
    new = connect()
    second.wait_for_the_end()
    for client in (third, first, new):
        client.ask()
    connect().ask()
    third.wait_for_the_end()
    assert [record.getMessage() for record in caplog.records] == [
        "more than 3 connections: those that have been idle longest are closed"
    ]


def test_a_connection_with_a_request_never_gives_way(connect: Callable[[], Client]) -> None:
    busy = [connect() for _ in range(3)]
    for client in busy:
        client.begin()
    for _ in range(2):
        connect().wait_for_the_end()
    for client in busy:
        client.finish()
        client.ask()


def test_connections_that_have_ended_are_not_counted(connect: Callable[[], Client]) -> None:
    kept = connect()
    kept.ask()
    for _ in range(10):
        client = connect()
        client.ask()
        client.socket.close()
    kept.ask()


@pytest.mark.parametrize("soft", [64, 256])
def test_the_soft_limit_on_files_is_raised(soft: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
        assert allow_files(256) == 256
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (256, before[1])
        assert allow_files(100) == 100
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (256, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("files", [10, 70, 100, 1024, 4096])
def test_connections_fit_in_the_limit_on_files(files: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "allow_files", lambda wanted: min(wanted, files))
    room = connections.capacity(1000)
    assert 1 <= room.connections <= 1000
    assert room.burst >= 1
    assert room.connections + 2 * room.burst <= max(files - 64, 3)
    assert room.connections == 1000 or room.connections >= (files - 64) // 2


def test_what_cannot_be_accepted_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    try:
        warn_when_out_of_files(loop)
        for _ in range(100):
            error = OSError(errno.EMFILE, "Too many open files")
            loop.call_exception_handler(
                {"message": "socket.accept() out of system resource", "exception": error, "socket": None}
            )
        assert len(caplog.records) == 1
        assert "open files" in caplog.text
        loop.call_exception_handler({"message": "something else"})
        assert caplog.records[-1].getMessage() == "something else"
    finally:
        loop.close()


def test_what_waits_for_a_busy_loop_is_accepted_at_once() -> None:
    config = uvicorn.Config(_answer, lifespan="off", http=connection_class(10), log_level="critical")
    config.load()
    with listen("127.0.0.1", 0) as listener:
        listener.setblocking(False)

        async def accept(count: int) -> int:
            server = _Server(config)
            server.lifespan = config.lifespan_class(config)
            clients = [socket.create_connection(listener.getsockname()[:2]) for _ in range(count)]
            server.accept_waiting([listener])
            while len(server.server_state.connections) < count:
                await asyncio.sleep(0.01)
            for client in clients:
                await asyncio.to_thread(client.sendall, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await asyncio.to_thread(client.recv, 4096)).startswith(b"HTTP/1.1 204 ")
                client.close()
            return len(clients)

        assert asyncio.run(asyncio.wait_for(accept(5), PATIENCE)) == 5


def test_idle_connections_keep_nobody_out(artifact_path: Path, wait_until: Callable[..., None]) -> None:
    process = ServeProcess(artifact_path, before=_FEW_FILES)
    with contextlib.ExitStack() as stack:
        stack.callback(process.close)
        wait_until(lambda: process.url() is not None)
        url = process.url() or ""
        wait_until(lambda: httpx.get(f"{url}/readyz", timeout=PATIENCE).status_code == 200)
        before = len(process.lines)
        for _ in range(150):
            stack.enter_context(Client(url).socket)
        for _ in range(3):
            assert httpx.get(f"{url}/healthz", timeout=PATIENCE).status_code == 200
        assert len(process.lines) < before + 10, process.log
        assert "idle longest are closed" in process.log
