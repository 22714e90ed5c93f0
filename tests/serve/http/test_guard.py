"""A service with keys and rates: who is let in, how, and what is said to others."""

import json
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lensbox.serve.observability.logs import JsonFormatter

_ALICE, _BOB = "alice-0123456789abcdef", "bob-0123456789abcdef"
_OPEN = ["/livez", "/docs", "/openapi.json", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"]
_CLOSED = [
    "/metrics",
    "/v1/model",
    "/v2",
    "/v2/models/fake",
    "/nothing",
    "/healthz/",
    "/Healthz",
]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(f"alice {_ALICE}\nbob {_BOB}\n")
    return path


def test_what_is_open_and_what_is_not(start: Callable[..., Any], keys: Path) -> None:
    client = start(api_keys_file=keys).client
    for path in _OPEN:
        assert client.get(path).status_code == 200, path
    assert client.get("/").status_code in (200, 404)  # the page, where there is one
    for path in _CLOSED:
        for method in ("GET", "POST", "HEAD", "OPTIONS"):
            assert client.request(method, path).status_code == 401, (method, path)
    assert client.get("/metrics", headers={"X-API-Key": _ALICE}).status_code == 200
    assert client.get("/nothing", headers={"X-API-Key": _ALICE}).status_code == 404


@pytest.mark.parametrize(
    ("path", "key", "answer"),
    [
        ("/v1/detect", "", b"HTTP/1.1 401 "),
        ("/v1/nothing", _ALICE, b"HTTP/1.1 404 "),
        ("/v1/detect", _ALICE, b"HTTP/1.1 413 "),
        ("/v1/detect?a=b", _ALICE, b"HTTP/1.1 422 "),
    ],
)
def test_who_has_no_leave_to_send_a_body_is_told_to_go(
    start: Callable[..., Any], keys: Path, path: str, key: str, answer: bytes
) -> None:
    url = start(api_keys_file=keys, max_body_bytes=2000).client.base_url
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\nExpect: 100-continue\r\n"
    with socket.create_connection((url.host, url.port), timeout=60) as connection:
        connection.sendall(f"{head}Content-Length: 3000\r\n\r\n".encode())
        received = b"".join(iter(lambda: connection.recv(4096), b""))  # until the service ends it
    assert received.startswith(answer)
    assert b"\r\nconnection: close\r\n" in received


def test_who_has_leave_to_send_a_body_may_go_on(start: Callable[..., Any], keys: Path, png: bytes) -> None:
    url = start(api_keys_file=keys).client.base_url
    head = f"POST /v1/detect HTTP/1.1\r\nHost: x\r\nX-API-Key: {_ALICE}\r\nExpect: 100-continue\r\n"
    with (
        socket.create_connection((url.host, url.port), timeout=60) as connection,
        connection.makefile("rb") as stream,
    ):
        for _ in range(2):
            connection.sendall(f"{head}Content-Length: {len(png)}\r\n\r\n".encode())
            assert stream.read(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
            connection.sendall(png)
            lines = list(iter(stream.readline, b"\r\n"))
            assert lines[0] == b"HTTP/1.1 200 OK\r\n"
            stream.read(next(int(line[16:]) for line in lines if line.startswith(b"content-length: ")))


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {_ALICE}"},
        {"authorization": f"bearer  {_ALICE}"},
        {"X-API-Key": _BOB},
        {"X-API-Key": _BOB, "Authorization": "Basic of-a-proxy"},
    ],
)
def test_a_key_lets_in(start: Callable[..., Any], keys: Path, png: bytes, headers: dict[str, str]) -> None:
    client = start(api_keys_file=keys).client
    assert client.post("/v1/detect", content=png, headers=headers).status_code == 200
    assert client.get("/v2", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        [("Authorization", f"Bearer {_ALICE}x")],
        [("Authorization", f"Basic {_ALICE}")],
        [("Authorization", _ALICE)],
        [("Authorization", "Bearer")],
        [("X-API-Key", "")],
        [("X-API-Key", "wrong"), ("Authorization", f"Bearer {_ALICE}")],
        [("X-API-Key", _ALICE), ("X-API-Key", _BOB)],
        [("Authorization", f"Bearer {_ALICE}"), ("Authorization", f"Bearer {_ALICE}")],
        [("Cookie", f"key={_ALICE}")],
    ],
)
def test_anything_else_does_not(
    start: Callable[..., Any], fake: Any, keys: Path, png: bytes, headers: list[tuple[str, str]]
) -> None:
    client = start(api_keys_file=keys).client
    response = client.post("/v1/detect", content=png, headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith('Bearer realm="lensbox"')
    assert not fake.calls
    assert client.get("/healthz").status_code == 200  # the same connection goes on


def test_the_forms_of_a_refusal(start: Callable[..., Any], keys: Path) -> None:
    client = start(api_keys_file=keys).client
    message = "a key must come as 'Authorization: Bearer KEY' or 'X-API-Key: KEY', got "
    response = client.get("/v1/model")
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["www-authenticate"] == 'Bearer realm="lensbox"'
    assert response.json() == {
        "type": "about:blank",
        "title": "Unauthorized",
        "status": 401,
        "detail": f"{message}none",
        "code": "unauthorized",
    }
    response = client.get("/v2/models/fake", headers={"X-API-Key": "wrong"})
    assert response.json() == {"error": f"{message}an unknown key"}
    assert response.headers["www-authenticate"] == 'Bearer realm="lensbox", error="invalid_token"'
    assert response.headers["x-request-id"]


def test_a_new_key_counts_while_the_service_runs(
    start: Callable[..., Any], keys: Path, wait_until: Callable[..., None]
) -> None:
    client = start(api_keys_file=keys).client
    new = "carol-0123456789abcdef"
    keys.write_text(f"carol {new}\n")
    wait_until(lambda: client.get("/v2", headers={"X-API-Key": new}).status_code == 200)
    assert client.get("/v2", headers={"X-API-Key": _ALICE}).status_code == 401


def test_logs_have_names_and_never_keys(
    start: Callable[..., Any], keys: Path, caplog: pytest.LogCaptureFixture, png: bytes
) -> None:
    client = start(api_keys_file=keys).client
    caplog.handler.setFormatter(JsonFormatter())
    caplog.set_level(logging.DEBUG)
    wrong = "mallory-0123456789abcdef"
    client.post("/v1/detect", content=png, headers={"Authorization": f"Bearer {_ALICE}"})
    client.post("/v1/detect", content=b"no image", headers={"X-API-Key": _BOB})
    client.post("/v1/detect", content=png, headers={"X-API-Key": wrong})
    client.get("/healthz", headers={"X-API-Key": _ALICE})
    lines = [json.loads(line) for line in caplog.text.splitlines() if "lensbox.serve.access" in line]
    asked = [line for line in lines if line["path"] == "/v1/detect"]
    keyed = [(line["status"], line.get("key")) for line in asked]
    assert keyed == [(200, "alice"), (400, "bob"), (401, None)]
    assert " key=alice" in asked[0]["message"]
    for key in (_ALICE, _BOB, wrong):
        assert key not in caplog.text


def test_openapi_tells_of_keys(start: Callable[..., Any], keys: Path) -> None:
    plain = start().client.get("/openapi.json").json()
    client = start(api_keys_file=keys).client
    schema = client.get("/openapi.json", headers={"X-API-Key": _ALICE}).json()
    assert "securitySchemes" not in plain["components"]
    assert set(schema["components"]["securitySchemes"]) == {"bearer", "key"}
    assert plain["paths"].keys() == schema["paths"].keys()
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            assert ("security" in operation) == (path not in _OPEN), path
            assert "401" in operation["responses"] or path in _OPEN
    (kind,) = schema["paths"]["/v1/detect"]["post"]["responses"]["401"]["content"]
    assert kind == client.post("/v1/detect").headers["content-type"]
    (kind,) = schema["paths"]["/v2"]["get"]["responses"]["401"]["content"]
    assert kind == client.get("/v2").headers["content-type"]
