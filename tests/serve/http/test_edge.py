"""What the edge asks of every request, and how it answers clients that misbehave."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from problems import problem_of

from lensbox.serve.http.middleware import Admission

_PATIENCE = 60.0


def _raw(client: httpx.Client, request: bytes) -> bytes:
    """Send bytes as they are; return all that comes until the service closes the connection."""
    port = client.base_url.port
    assert port is not None
    with socket.create_connection((client.base_url.host, port), _PATIENCE) as connection:
        connection.sendall(request)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(1 << 16):
                received += piece
    return received


@pytest.mark.parametrize("hosts", [b"", b"Host: a\r\nHost: b\r\n"])
def test_rejects_two_hosts_and_none(client: httpx.Client, hosts: bytes) -> None:
    answer = _raw(client, b"GET /livez HTTP/1.1\r\n" + hosts + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"invalid_host"' in answer


def test_rejects_a_post_that_offers_another_protocol(client: httpx.Client) -> None:
    request = b"POST /v1/loss HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
    answer = _raw(client, request + b"Content-Length: 2\r\n\r\n{}")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"'h2c'" in answer


def test_a_path_with_a_slash_is_not_redirected(client: httpx.Client, png: bytes) -> None:
    response = client.post("/v1/detect/", content=png, headers={"Host": "evil.example"})
    assert response.status_code == 404
    assert "location" not in response.headers


@pytest.mark.parametrize(
    ("forwarded", "logged"), [("203.0.113.7", True), ("anything at all", False), ("1.2.3.4, x", False)]
)
def test_forwarded_for_is_an_address_or_ignored(
    client: httpx.Client,
    caplog: pytest.LogCaptureFixture,
    wait_until: Callable[..., None],
    forwarded: str,
    logged: bool,
) -> None:
    caplog.set_level("INFO", "lensbox.serve.access")
    client.get("/v1/model", headers={"X-Forwarded-For": forwarded})
    wait_until(lambda: "GET /v1/model" in caplog.text)
    assert (forwarded in caplog.text) == logged
    assert ("127.0.0.1" in caplog.text) != logged


def test_answers_close_connections_while_draining(start: Callable[..., Any]) -> None:
    running = start()
    assert "connection" not in running.client.get("/livez").headers
    running.service.draining = True
    assert running.client.get("/livez").headers["connection"] == "close"
    assert running.client.get("/readyz").status_code == 503


def test_a_slow_reader_is_in_progress_and_is_cut_off(start: Callable[..., Any]) -> None:
    service = start(send_timeout=0.2).service
    sent: list[int] = []
    in_progress: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(8 << 20)})

    async def send(message: Any) -> None:
        sent.append(len(message.get("body", b"")))
        if len(sent) > 2:  # the client reads no more
            in_progress.append(service.in_progress)
            await asyncio.sleep(3600)

    state: Any = SimpleNamespace(state=SimpleNamespace(service=service))
    scope = {"type": "http", "method": "POST", "path": "/v1/detect", "headers": []}
    asyncio.run(Admission(app, state)(scope, send, send))  # type: ignore[arg-type]
    assert in_progress == [1]
    assert service.in_progress == 0
    assert sum(sent) == 2 << 16


@pytest.mark.parametrize(
    ("content", "headers", "hint"),
    [
        (b"photo.jpg", {}, "--data-binary @photo.jpg"),
        (
            b"\xff\xd8\xff broken",
            {"Content-Type": "application/x-www-form-urlencoded"},
            "--data-binary @photo.jpg",
        ),
    ],
)
def test_hints_at_the_option_of_curl(
    client: httpx.Client, content: bytes, headers: dict[str, str], hint: str
) -> None:
    response = client.post("/v1/detect", content=content, headers=headers)
    assert response.status_code == 400
    assert hint in problem_of(response)["message"]
