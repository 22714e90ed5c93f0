"""Checks of every request, and answers to clients that misbehave."""

import contextlib
import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from problems import problem_of

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
    client.get("/v1/model", headers={"X-Forwarded-For": forwarded, "X-Request-ID": "mine"})
    wait_until(lambda: " mine" in caplog.text)
    (line,) = [record.getMessage() for record in caplog.records if record.getMessage().endswith(" mine")]
    assert (forwarded in line) == logged
    assert ("127.0.0.1" in line) != logged


def test_answers_close_connections_while_draining(start: Callable[..., Any]) -> None:
    running = start()
    assert "connection" not in running.client.get("/livez").headers
    running.service.draining = True
    assert running.client.get("/livez").headers["connection"] == "close"
    assert running.client.get("/readyz").status_code == 503


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


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/v2/health/ready", "/metrics", "/openapi.json", "/no"]
)
def test_head_is_answered_as_get_without_the_body(start: Callable[..., Any], path: str) -> None:
    client = start().client
    for _ in range(2):  # nothing of the body is left on the connection
        head, get = client.head(path), client.get(path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        assert head.headers["content-type"] == get.headers["content-type"]
        if path != "/metrics":  # which grow
            assert head.headers["content-length"] == str(len(get.content))


def test_head_is_counted_for_its_endpoint(start: Callable[..., Any]) -> None:
    client = start().client
    counted = 'lensbox_requests_total{route="/v2/health/live",status="200"} 1.0'
    assert client.head("/v2/health/live").status_code == 200
    assert counted in client.get("/metrics").text


def test_head_is_refused_where_get_is(start: Callable[..., Any]) -> None:
    head = start().client.head("/v1/detect")
    assert (head.status_code, head.headers["allow"]) == (405, "POST")
