"""Key files, and authentication of requests."""

import hashlib
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
from services import Start, connect
from waiting import wait_until

from lensbox.serve.http import api_keys
from lensbox.serve.http.api_keys import KeyFile, KeyFileError, parse_keys
from lensbox.serve.observability.logs import JsonFormatter

_ALICE, _BOB = "alice-0123456789abcdef", "bob-0123456789abcdef"
_HASH = hashlib.sha256(_BOB.encode()).hexdigest()
_OPEN = [
    "/",
    "/livez",
    "/docs",
    "/openapi.json",
    "/healthz",
    "/readyz",
    "/v2/health/live",
    "/v2/health/ready",
]
_CLOSED = ["/metrics", "/v1/model", "/v2", "/v2/models/fake", "/nothing", "/healthz/", "/Healthz"]


def test_keys_are_plain_or_hashed() -> None:
    content = f"# a comment\n\n  alice {_ALICE}\r\nalice {_ALICE}-2\nbob\tsha256:{_HASH}\n"
    keys = parse_keys(content.encode())
    assert keys.name_of(_ALICE.encode()) == keys.name_of(f"{_ALICE}-2".encode()) == "alice"
    assert keys.name_of(_BOB.encode()) == "bob"
    for wrong in (b"", _ALICE.encode()[:-1], _ALICE.encode() + b"x", f"sha256:{_HASH}".encode(), b"\xff"):
        assert keys.name_of(wrong) is None
    assert _ALICE not in repr(keys)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file must have at least one key, got none"),
        ("# nothing\n", "the file must have at least one key, got none"),
        (_ALICE, "line 1: expected a name and a key, got 1 words"),
        (f"\nalice {_ALICE} # hers", "line 2: expected a name and a key, got 4 words"),
        (
            f"bob sha256:{_HASH}  -",
            "line 1: expected a name and a key, got 3 words; leave out the '-' that sha256sum prints",
        ),
        (f"al/ice {_ALICE}", "line 1: a name must be 1 to 64 characters of A-Z a-z 0-9 . _ @ -"),
        ("alice short", "line 1: a key must have 16 to 256 characters, got 5"),
        (f"alice sha256:{_HASH[1:]}", "line 1: sha256: must be followed by 64 hex digits in lower case"),
        (f"a {_ALICE}\nb {_ALICE}", "line 2: each key must occur once, got a key of an earlier line"),
        (f"ä {_ALICE}", "the file must be ASCII, got another byte at offset 0"),
    ],
)
def test_rejects_invalid_key_files(content: str, message: str) -> None:
    with pytest.raises(KeyFileError) as raised:
        parse_keys(content.encode())
    assert str(raised.value) == message


def test_names_the_unusable_key_file(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"^api_keys_file .*keys cannot be used: No such file"):
        KeyFile(tmp_path / "keys")
    (tmp_path / "keys").write_bytes(bytes(1 << 21))
    with pytest.raises(KeyFileError, match=r"the file must have at most 1048576 bytes, got more$"):
        KeyFile(tmp_path / "keys")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Path:
    monkeypatch.setattr(api_keys, "_INTERVAL", 0)
    caplog.set_level(logging.INFO)
    (tmp_path / "keys").write_text(f"alice {_ALICE}\n")
    return tmp_path / "keys"


def test_reloads_a_changed_file_once_two_checks_agree(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = KeyFile(path)
    path.write_text(f"bob {_BOB[:-1]}")  # half of the file
    file.refresh()
    path.write_text(f"bob {_BOB}\n")
    file.refresh()
    assert (file.keys.name_of(_ALICE.encode()), caplog.records) == ("alice", [])
    for _ in range(2):
        file.refresh()
    assert file.keys.name_of(_BOB.encode()) == "bob"
    assert file.keys.name_of(_ALICE.encode()) is None
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [f"{path} was reloaded; keys: 1; new names: bob; removed names: alice"]


@pytest.mark.parametrize("broken", [f"bob {_BOB}\ncarol\n", None])
def test_a_broken_file_keeps_the_previous_keys(
    path: Path, caplog: pytest.LogCaptureFixture, broken: str | None
) -> None:
    file = KeyFile(path)
    path.unlink()
    if broken is not None:
        path.write_text(broken)
    for _ in range(3):
        file.refresh()
    other = pickle.loads(pickle.dumps(file))  # another process begins with the same keys
    other.refresh()
    reason = "No such file or directory" if broken is None else "line 2: expected a name and a key"
    assert f"{path} cannot be used; the previous keys stay valid: {reason}" in caplog.text
    assert len(caplog.records) == 1
    for keys in (file.keys, other.keys):
        assert keys.name_of(_ALICE.encode()) == "alice"
        assert keys.name_of(_BOB.encode()) is None
    path.write_text(f"alice {_ALICE}\nbob {_BOB}\n")
    for _ in range(2):
        file.refresh()
    assert file.keys.name_of(_BOB.encode()) == "bob"
    assert _ALICE not in caplog.text
    assert _BOB not in caplog.text


# --- over HTTP ---


@pytest.fixture
def guarded(start: Start, tmp_path: Path) -> Any:
    """A service with the keys of alice and bob in `tmp_path / "keys"`."""
    (tmp_path / "keys").write_text(f"alice {_ALICE}\nbob {_BOB}\n")
    return start(api_keys_file=tmp_path / "keys", max_body_bytes=100_000)


def test_closed_paths_need_a_key(guarded: Any) -> None:
    client = guarded.client
    for path in _OPEN:
        assert client.get(path).status_code == 200, path
    for path in _CLOSED:
        for method in ("GET", "POST", "HEAD", "OPTIONS"):
            assert client.request(method, path).status_code == 401, (method, path)
    assert client.get("/metrics", headers={"X-API-Key": _ALICE}).status_code == 200
    assert client.get("/nothing", headers={"X-API-Key": _ALICE}).status_code == 404


@pytest.mark.parametrize(
    ("headers", "good"),
    [
        ([("Authorization", f"Bearer {_ALICE}")], True),
        ([("authorization", f"bearer  {_ALICE}")], True),
        ([("X-API-Key", _BOB)], True),
        ([("X-API-Key", _BOB), ("Authorization", "Basic of-a-proxy")], True),
        ([("Authorization", f"Bearer {_ALICE}x")], False),
        ([("Authorization", f"Basic {_ALICE}")], False),
        ([("Authorization", _ALICE)], False),
        ([("Authorization", "Bearer")], False),
        ([("X-API-Key", "")], False),
        ([("X-API-Key", "wrong"), ("Authorization", f"Bearer {_ALICE}")], False),
        ([("X-API-Key", _ALICE), ("X-API-Key", _BOB)], False),
        ([("Authorization", f"Bearer {_ALICE}"), ("Authorization", f"Bearer {_ALICE}")], False),
        ([("Cookie", f"key={_ALICE}")], False),
    ],
)
def test_accepts_exactly_one_known_key(
    guarded: Any, fake: Any, png: bytes, headers: list[tuple[str, str]], good: bool
) -> None:
    response = guarded.client.post("/v1/detect", content=png, headers=headers)
    assert response.status_code == (200 if good else 401)
    assert bool(fake.calls) == good
    if not good:
        assert response.headers["www-authenticate"].startswith('Bearer realm="lensbox"')
    assert guarded.client.get("/healthz").status_code == 200  # the same connection goes on


def test_401_has_message_and_challenge(guarded: Any) -> None:
    message = "send an API key as 'Authorization: Bearer KEY' or 'X-API-Key: KEY', got "
    response = guarded.client.get("/v1/model")
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["www-authenticate"] == 'Bearer realm="lensbox"'
    assert (response.json()["code"], response.json()["detail"]) == ("unauthorized", f"{message}none")
    response = guarded.client.get("/v2/models/fake", headers={"X-API-Key": "wrong"})
    assert response.json() == {"error": f"{message}an unknown key"}
    assert response.headers["www-authenticate"] == 'Bearer realm="lensbox", error="invalid_token"'
    assert response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("path", "key", "answer"),
    [
        ("/v1/detect", "", b"HTTP/1.1 401 "),
        ("/v1/nothing", _ALICE, b"HTTP/1.1 404 "),
        ("/v1/detect", _ALICE, b"HTTP/1.1 413 "),
        ("/v1/detect?a=b", _ALICE, b"HTTP/1.1 422 "),
    ],
)
def test_a_refusal_before_the_body_closes_the_connection(
    guarded: Any, path: str, key: str, answer: bytes
) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\nExpect: 100-continue\r\n"
    with connect(guarded.client.base_url) as connection:
        connection.sendall(f"{head}Content-Length: 300000\r\n\r\n".encode())
        received = b"".join(iter(lambda: connection.recv(4096), b""))  # until the service ends it
    assert received.startswith(answer)
    assert b"\r\nconnection: close\r\n" in received


def test_100_continue_keeps_the_connection(guarded: Any, png: bytes) -> None:
    head = f"POST /v1/detect HTTP/1.1\r\nHost: x\r\nX-API-Key: {_ALICE}\r\nExpect: 100-continue\r\n"
    with connect(guarded.client.base_url) as connection, connection.makefile("rb") as stream:
        for _ in range(2):
            connection.sendall(f"{head}Content-Length: {len(png)}\r\n\r\n".encode())
            assert stream.read(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
            connection.sendall(png)
            lines = list(iter(stream.readline, b"\r\n"))
            assert lines[0] == b"HTTP/1.1 200 OK\r\n"
            stream.read(next(int(line[16:]) for line in lines if line.startswith(b"content-length: ")))


def test_reloads_keys_while_the_service_runs(guarded: Any, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"carol {_ALICE}-2\n")
    wait_until(lambda: guarded.client.get("/v2", headers={"X-API-Key": f"{_ALICE}-2"}).status_code == 200)
    assert guarded.client.get("/v2", headers={"X-API-Key": _ALICE}).status_code == 401


def test_logs_have_names_and_never_keys(guarded: Any, caplog: pytest.LogCaptureFixture, png: bytes) -> None:
    caplog.handler.setFormatter(JsonFormatter())
    caplog.set_level(logging.DEBUG)
    wrong = "mallory-0123456789abcdef"
    for content, key in ((png, _ALICE), (b"no image", _BOB), (png, wrong)):
        guarded.client.post("/v1/detect", content=content, headers={"X-API-Key": key})

    def asked() -> list[Any]:
        lines = [json.loads(line) for line in caplog.text.splitlines() if "lensbox.serve.access" in line]
        return [(line["status"], line.get("key")) for line in lines if line["path"] == "/v1/detect"]

    wait_until(lambda: len(asked()) == 3)
    assert asked() == [(200, "alice"), (400, "bob"), (401, None)]
    assert " key=alice" in caplog.text
    for key in (_ALICE, _BOB, wrong):
        assert key not in caplog.text


def test_openapi_declares_api_keys(guarded: Any, start: Start) -> None:
    plain = start().client.get("/openapi.json").json()
    assert "securitySchemes" not in plain["components"]
    document = guarded.client.get("/openapi.json").json()
    assert set(document["components"]["securitySchemes"]) == {"bearer", "key"}
    assert plain["paths"].keys() == document["paths"].keys()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert ("security" in operation) == (path not in _OPEN), path
            if path not in _OPEN:
                (kind,) = operation["responses"]["401"]["content"]
                assert kind == guarded.client.request(method, path).headers["content-type"]
