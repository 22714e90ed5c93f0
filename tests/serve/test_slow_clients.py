"""Clients that take too long, over real sockets: a server cuts them off and answers the others."""

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn

from lensbox.serve.connections import connection_class
from lensbox.serve.slow_clients import Patience

_LATE = 0.5  # seconds, the limit under test
_SOON = 20.0  # seconds: what has not happened by then does not happen
_NEVER = 3600.0
_HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
_BIG = 32 << 20  # bytes of an answer: more than any buffer of the kernel


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """/big: a large answer; /early: an answer before the body; else one after it."""
    if scope["path"] == "/big":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(_BIG)})
        return
    while scope["path"] != "/early" and (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


class Server:
    """A server with its limits. closed: connections that it closed, by reason."""

    def __init__(
        self,
        start: Callable[[uvicorn.Config], str],
        limit: int,
        patience: Patience,
        keep_alive: int = 5,
        **more: Any,
    ):
        self.closed: Counter[str] = Counter()
        protocol = connection_class(limit, patience=patience, on_closed=self._close, **more)
        config = uvicorn.Config(
            _app, lifespan="off", http=protocol, log_level="critical", timeout_keep_alive=keep_alive
        )
        url = start(config)
        host, port = url.removeprefix("http://").split(":")
        self.address = host, int(port)

    def _close(self, reason: str) -> None:
        self.closed[reason] += 1

    def connect(self, stack: contextlib.ExitStack, source: str = "127.0.0.1") -> socket.socket:
        connection = socket.create_connection(self.address, timeout=_SOON, source_address=(source, 0))
        return stack.enter_context(connection)


@pytest.fixture
def start(url_of_server: Callable[[uvicorn.Config], str]) -> Callable[..., Server]:
    """Starts a server with limits."""

    def start(
        limit: int = 1000,
        head: float = _NEVER,
        body: float = _NEVER,
        answer: float = _NEVER,
        keep_alive: int = 5,
    ) -> Server:
        return Server(url_of_server, limit, Patience(head, body, answer), keep_alive)

    return start


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def _ask(client: socket.socket, path: str = "/") -> None:
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert client.recv(4096).startswith(b"HTTP/1.1 204 ")


def _is_cut(client: socket.socket) -> bool:
    """Whether the server ends the connection in time, without an answer."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def _drips_until_cut(client: socket.socket, head: bytes) -> bool:
    """Sends a byte at a time, much more often than the limit; whether the server puts an end to it."""
    end = time.monotonic() + _SOON
    client.settimeout(_LATE / 10)
    while time.monotonic() < end:
        try:
            client.sendall(head[:1])
            head = head[1:] or b"x"
            if client.recv(1) == b"":
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def test_a_head_that_drips_is_cut_off(start: Callable[..., Server], stack: contextlib.ExitStack) -> None:
    server = start(head=_LATE)
    assert _drips_until_cut(server.connect(stack), _HEAD)
    assert server.closed == {"slow_request": 1}


def test_the_head_of_a_later_request_has_no_more_time(
    start: Callable[..., Server], stack: contextlib.ExitStack
) -> None:
    server = start(head=_LATE)
    client = server.connect(stack)
    _ask(client)
    assert _drips_until_cut(client, _HEAD)
    assert server.closed == {"slow_request": 1}


def test_a_connection_without_a_request_ends_without_a_word(
    start: Callable[..., Server], stack: contextlib.ExitStack
) -> None:
    server = start(head=_LATE)
    assert _is_cut(server.connect(stack))
    assert not server.closed


def test_idle_connections_and_slow_bodies_are_not_heads(
    start: Callable[..., Server], stack: contextlib.ExitStack
) -> None:
    server = start(head=_LATE)
    client = server.connect(stack)
    for _ in range(2):
        _ask(client)
        time.sleep(2 * _LATE)
    client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n")
    for _ in range(8):
        time.sleep(_LATE / 4)
        client.sendall(b"x")
    assert client.recv(4096).startswith(b"HTTP/1.1 204 ")
    assert not server.closed


def test_the_rest_of_a_body_that_was_answered_early_has_its_time(
    start: Callable[..., Server], stack: contextlib.ExitStack
) -> None:
    patient, hasty = start(head=_LATE), start(body=_LATE)
    request = b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
    for server in (patient, hasty):
        client = server.connect(stack)
        client.sendall(request)
        assert client.recv(4096).startswith(b"HTTP/1.1 204 ")
        if server is hasty:
            assert _drips_until_cut(client, b"x" * 1000)
            continue
        for _ in range(20):
            client.sendall(bytes(5000))
            time.sleep(_LATE / 5)
        _ask(client)


@pytest.mark.parametrize("path", ["/", "/early"])
def test_the_connection_stays_as_long_as_any_behind_a_whole_body(
    start: Callable[..., Server], path: str, stack: contextlib.ExitStack
) -> None:
    server = start(head=_LATE, body=_LATE, keep_alive=3)
    client = server.connect(stack)
    for _ in range(2):
        client.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n".encode())
        if path == "/early":
            assert client.recv(4096).startswith(b"HTTP/1.1 204 ")
        client.sendall(bytes(8))
        if path == "/":
            assert client.recv(4096).startswith(b"HTTP/1.1 204 ")
        time.sleep(2 * _LATE)
    begun = time.monotonic()
    assert _is_cut(client)  # as an idle one
    assert time.monotonic() - begun > _LATE
    assert not server.closed


def _endless(client: socket.socket, line: bytes) -> bytes:
    """What a server answers to a megabyte of such lines; b"" where it ends the connection instead."""
    try:
        for _ in range(1000):
            client.sendall(line)
        return client.recv(4096)
    except (BrokenPipeError, ConnectionResetError):
        return b""


_LONG_LINE = b"X: " + b"x" * 1000 + b"\r\n"


def test_a_head_without_end_is_refused(start: Callable[..., Server], stack: contextlib.ExitStack) -> None:
    client = start().connect(stack)
    client.sendall(_HEAD)
    assert _endless(client, _LONG_LINE)[:12] in (b"HTTP/1.1 431", b"")  # lost where the client still sent


def test_a_head_without_end_is_refused_behind_a_body_that_was_answered_early(
    start: Callable[..., Server], stack: contextlib.ExitStack
) -> None:
    client = start().connect(stack)
    client.sendall(b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n")
    assert client.recv(4096).startswith(b"HTTP/1.1 204 ")
    client.sendall(bytes(8) + _HEAD)
    assert _endless(client, _LONG_LINE)[:12] in (b"HTTP/1.1 431", b"")


@pytest.mark.parametrize("line", [_LONG_LINE, b"x" * 1000], ids=["lines", "one line"])
@pytest.mark.parametrize("path", ["/", "/early"])
def test_trailers_without_end_are_refused(
    start: Callable[..., Server], path: str, line: bytes, stack: contextlib.ExitStack
) -> None:
    client = start(body=_NEVER).connect(stack)
    client.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    if path == "/early":
        assert client.recv(4096).startswith(b"HTTP/1.1 204 ")
    client.sendall(b"1\r\nx\r\n0\r\nX: y" + line)
    assert _endless(client, line) == b""


def test_an_answer_that_is_not_taken_is_given_up(
    start: Callable[..., Server], stack: contextlib.ExitStack
) -> None:
    server = start(answer=_LATE)
    client = server.connect(stack)
    client.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
    end = time.monotonic() + _SOON
    while not server.closed and time.monotonic() < end:
        time.sleep(0.01)
    assert server.closed == {"slow_reader": 1}
    received = 0
    with contextlib.suppress(ConnectionResetError):
        while chunk := client.recv(1 << 20):
            received += len(chunk)
    assert received < _BIG


def test_an_answer_that_is_taken_in_pieces_arrives(
    start: Callable[..., Server], stack: contextlib.ExitStack
) -> None:
    server = start(answer=10.0)
    client = server.connect(stack)
    client.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
    received = 0
    while received < _BIG:
        received += len(client.recv(1 << 20))
        time.sleep(0.001)
    time.sleep(0.05)
    assert not server.closed


@pytest.mark.parametrize("limit", [100, 1000])
def test_200_connections_that_drip_keep_nobody_out(
    start: Callable[..., Server], limit: int, stack: contextlib.ExitStack
) -> None:
    server = start(limit=limit, head=2.0)
    stopped = threading.Event()
    connections = [server.connect(stack) for _ in range(200)]

    def drip() -> None:
        """A byte for each connection each second; what is closed is opened again."""
        heads = [iter(_HEAD) for _ in connections]
        while not stopped.is_set():
            for index, connection in enumerate(connections):
                try:
                    connection.sendall(bytes([next(heads[index])]))
                except OSError:
                    connection.close()
                    connections[index] = server.connect(stack)
                    heads[index] = iter(_HEAD)
            stopped.wait(1.0)

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        end = time.monotonic() + 5.0
        answers = 0
        while time.monotonic() < end:
            with contextlib.ExitStack() as one:
                _ask(server.connect(one, "127.0.0.2"))
                answers += 1
            time.sleep(0.05)
        assert answers > 20
    finally:
        stopped.set()
        thread.join(_SOON)
    assert server.closed["crowded" if limit == 100 else "slow_request"] >= 100


def test_a_client_has_its_share(
    url_of_server: Callable[[uvicorn.Config], str], stack: contextlib.ExitStack
) -> None:
    server = Server(url_of_server, 1000, Patience(_NEVER, _NEVER, _NEVER), limit_of_a_client=3)
    mine = [server.connect(stack) for _ in range(3)]
    for client in mine:
        _ask(client)
    other = server.connect(stack, "127.0.0.2")
    _ask(other)
    newest = server.connect(stack)
    assert _is_cut(mine[0])  # idle for the longest time
    for client in (mine[1], mine[2], newest, other):
        _ask(client)
    assert server.closed == {"client_limit": 1}
    for client in (mine[1], mine[2]):
        client.close()
    for _ in range(2):
        _ask(server.connect(stack))
    _ask(newest)
