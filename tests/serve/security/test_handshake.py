"""Clients that begin a TLS handshake and do not go on: they count as connections, and keep nobody out."""

import contextlib
import select
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from certificates import write_certificate
from serve_process import PATIENCE, ServeProcess

_LIMIT = 20
_OTHER_ADDRESS = "127.0.0.2"  # of the loopback interface, too


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_certificate(tmp_path_factory.mktemp("tls"), "127.0.0.1")


@pytest.fixture
def start(
    artifact_path: Path, files: tuple[Path, Path], wait_until: Callable[..., None]
) -> Iterator[Callable[..., ServeProcess]]:
    """Starts a service that gives a handshake longer than any test here takes."""
    processes: list[ServeProcess] = []
    tls = ["--tls-certificate", str(files[0]), "--tls-key", str(files[1]), "--header-timeout", "600"]

    def start(*options: str) -> ServeProcess:
        processes.append(ServeProcess(artifact_path, *tls, *options))
        wait_until(lambda: "ready:" in processes[-1].log)
        return processes[-1]

    yield start
    for process in processes:
        process.close()


def _address(process: ServeProcess) -> tuple[str, int]:
    host, _, port = (process.url() or "").removeprefix("https://").partition(":")
    return host, int(port)


def _first_bytes(context: ssl.SSLContext) -> bytes:
    """What a client says first."""
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1").do_handshake()
    return outgoing.read()


def _is_open(connection: socket.socket) -> bool:
    """Whether the service has not closed it; what it has answered so far is thrown away."""
    while select.select([connection], [], [], 0)[0]:
        try:
            if not connection.recv(1 << 16):
                return False
        except ConnectionResetError:
            return False
    return True


@pytest.mark.parametrize("option", ["--max-connections", "--max-client-connections"])
def test_handshakes_count_and_give_way(
    option: str,
    start: Callable[..., ServeProcess],
    files: tuple[Path, Path],
    wait_until: Callable[..., None],
) -> None:
    process = start(option, str(_LIMIT))
    context = ssl.create_default_context(cafile=files[0])
    hello = _first_bytes(context)
    with contextlib.ExitStack() as stack:
        # Its connection stays open; it was there before all others.
        client = stack.enter_context(
            httpx.Client(base_url=process.url() or "", verify=context, timeout=PATIENCE)
        )
        assert client.get("/healthz").status_code == 200
        (connection,) = client._transport._pool.connections  # type: ignore[attr-defined]
        begun = []
        for number in range(3 * _LIMIT):
            other = socket.create_connection(
                _address(process), timeout=PATIENCE, source_address=(_OTHER_ADDRESS, 0)
            )
            begun.append(stack.enter_context(other))
            with contextlib.suppress(OSError):  # of those that have been closed already
                other.sendall((b"", hello[:7], hello)[number % 3])
        # The client has one of the places that are counted together.
        most = _LIMIT - 1 if option == "--max-connections" else _LIMIT
        wait_until(lambda: sum(map(_is_open, begun)) <= most)
        assert all(map(_is_open, begun[-most:]))  # the latest, as those that have waited longest give way
        assert client.get("/healthz").status_code == 200
        assert client._transport._pool.connections == [connection]  # type: ignore[attr-defined]
        # Nor is a new client kept out.
        assert httpx.get(f"{process.url()}/healthz", verify=context, timeout=PATIENCE).status_code == 200
        reason = "crowded" if option == "--max-connections" else "client_limit"
        metrics = client.get("/metrics").text
        assert f'lensbox_connections_closed_total{{reason="{reason}"}}' in metrics
    assert "Traceback" not in process.log


def test_a_request_may_come_with_the_end_of_the_handshake(
    start: Callable[..., ServeProcess], files: tuple[Path, Path]
) -> None:
    """In the same packet, as clients in a hurry send it."""
    process = start()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=files[0])
    tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")

    def held_back(step: Callable[[], object]) -> None:
        """Does a step with what the service says; what there is to say stays in `outgoing`."""
        while True:
            try:
                step()
                return
            except ssl.SSLWantReadError:
                connection.sendall(outgoing.read())
                incoming.write(connection.recv(1 << 16))

    with socket.create_connection(_address(process), timeout=PATIENCE) as connection:
        held_back(tls.do_handshake)
        tls.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        connection.sendall(outgoing.read())
        answer = bytearray()
        held_back(lambda: answer.extend(tls.read(1 << 16)))
    assert answer.startswith(b"HTTP/1.1 200 OK")


def test_the_end_does_not_wait_for_handshakes(start: Callable[..., ServeProcess]) -> None:
    process = start()
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(socket.create_connection(_address(process), timeout=PATIENCE))
        with pytest.raises(httpx.TransportError):  # those before it have been accepted by now
            httpx.get(f"{process.url()}/healthz", timeout=PATIENCE)
        begin = time.monotonic()
        assert process.end(signal.SIGTERM) == 0
    assert time.monotonic() - begin < 20  # of the 30 that requests in progress have
    assert "Traceback" not in process.log


def test_a_handshake_that_drips_has_no_more_time(
    start: Callable[..., ServeProcess], files: tuple[Path, Path]
) -> None:
    process = start("--header-timeout", "2")
    context = ssl.create_default_context(cafile=files[0])
    hello = _first_bytes(context)
    begin = time.monotonic()
    with socket.create_connection(_address(process), timeout=PATIENCE) as slow:
        sent = 0
        while _is_open(slow):
            # At this pace it would take a minute and more.
            with contextlib.suppress(OSError):
                sent += slow.send(hello[sent : sent + 1])
            time.sleep(0.2)
            assert time.monotonic() - begin < 30
    assert sent < len(hello)
    assert httpx.get(f"{process.url()}/healthz", verify=context, timeout=PATIENCE).status_code == 200
