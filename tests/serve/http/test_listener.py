"""The socket that the service listens on."""

import asyncio
import socket

import pytest

from lensbox.serve.http.listener import listen

_PATIENCE = 60.0


def test_the_ipv6_wildcard_accepts_ipv4() -> None:
    try:
        listener = listen("::", 0)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with listener:
        port = listener.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), timeout=_PATIENCE).close()


def test_accepted_connections_have_tcp_nodelay() -> None:
    listener = listen("127.0.0.1", 0)

    async def option_of_an_accepted_connection() -> int:
        accepted: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()

        class Protocol(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted.set_result(transport.get_extra_info("socket"))

        server = await asyncio.get_running_loop().create_server(Protocol, sock=listener)
        async with server:
            with socket.create_connection(listener.getsockname()[:2], timeout=_PATIENCE):
                return (await accepted).getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    assert asyncio.run(option_of_an_accepted_connection()) != 0
