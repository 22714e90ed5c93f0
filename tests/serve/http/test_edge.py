"""Checks of every request, headers of every answer, and CORS."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from services import Start, problem_of
from waiting import wait_until

_SHOP = "https://shop.example"
_ASK = {"Origin": _SHOP, "Access-Control-Request-Method": "POST"}
_KEY = "alice-0123456789abcdef"


def test_the_log_shows_the_forwarded_address(client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lensbox.serve.access")
    for forwarded, logged in (
        ("made up, 203.0.113.7", " 203.0.113.7:0 mine"),  # a proxy appends to the client's list
        ("2001:db8::7%eth0", " 2001:db8::7%eth0:0 mine"),
        ("a GET 200 b", " invalid:0 mine"),
    ):
        client.get("/v1/model", headers={"X-Forwarded-For": forwarded, "X-Request-ID": "mine"})
        wait_until(lambda logged=logged: logged in caplog.text)  # type: ignore[misc]


def test_answers_close_connections_while_draining(start: Start) -> None:
    running = start()
    assert "connection" not in running.client.get("/livez").headers
    running.service.draining = True
    assert running.client.get("/livez").headers["connection"] == "close"
    assert running.client.get("/readyz").status_code == 503


# --- headers ---


def test_every_answer_has_an_id_and_security_headers(client: httpx.Client) -> None:
    for method, path, status in (
        ("GET", "/healthz", 200),
        ("POST", "/v1/detect", 400),
        ("GET", "/nothing", 404),
        ("POST", "/v2/health/live", 405),
    ):
        response = client.request(method, path, headers={"X-Request-ID": "mine"})
        assert (response.status_code, response.headers.get_list("x-request-id")) == (status, ["mine"])
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        policy = response.headers["content-security-policy"]
        assert {"frame-ancestors 'none'", "script-src 'self'", "default-src 'none'"} <= set(
            policy.split("; ")
        )
        assert not any(word in policy for word in ("unsafe", "http", "data:"))
        assert re.fullmatch("[0-9a-f]{32}", client.request(method, path).headers["x-request-id"])


@pytest.mark.parametrize("values", [[""], ["x" * 129], ["two words"], ['a"b'], ["ä"], ["a;b"], ["a", "b"]])
def test_replaces_invalid_ids_by_random_ones(client: httpx.Client, values: list[str]) -> None:
    sent = [(b"X-Request-ID", value.encode()) for value in values]
    made = {client.get("/livez", headers=sent).headers["x-request-id"] for _ in range(2)}
    assert len(made) == 2
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in made)


def test_keeps_valid_ids(client: httpx.Client) -> None:
    for value in ("7f3e/1:b=c@d+e~f.g_h-i", "x" * 128):
        assert client.get("/livez", headers={"X-Request-ID": value}).headers["x-request-id"] == value


def test_a_defect_is_answered_with_all_headers_and_without_details(
    start: Start, fake: Any, png: bytes
) -> None:
    client = start(cors_origins=_SHOP).client
    fake.error = RuntimeError("secret detail")
    headers = {"Origin": _SHOP, "X-Request-ID": "mine"}
    response = client.post("/v1/detect", content=png, headers=headers)
    assert problem_of(response)[:2] == (500, "internal_error")
    assert "secret" not in response.text
    for name, value in {
        "connection": "close",
        "x-request-id": "mine",
        "x-content-type-options": "nosniff",
        "access-control-allow-origin": _SHOP,
    }.items():
        assert response.headers[name] == value
    fake.error = None
    assert client.post("/v1/detect", content=png).status_code == 200


def test_cors_allows_only_configured_origins(client: httpx.Client, start: Start, tmp_path: Path) -> None:
    assert client.options("/v1/detect", headers=_ASK).status_code == 405  # off by default
    (tmp_path / "keys").write_text(_KEY)
    client = start(cors_origins=f"{_SHOP},http://localhost:3000", api_keys_file=tmp_path / "keys").client
    headers = {**_ASK, "Access-Control-Request-Headers": "authorization,content-type,x-request-timeout-ms"}
    headers["Access-Control-Request-Private-Network"] = "true"
    # A browser's preflight request has no key.
    response = client.options("/v1/detect", headers=headers)
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, _SHOP)
    assert "access-control-allow-credentials" not in response.headers
    # A script of the origin may read a 401, too.
    response = client.get("/v2", headers={"Origin": _SHOP})
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (401, _SHOP)
    assert "X-Request-ID" in response.headers["access-control-expose-headers"]
    evil = {"Origin": "https://evil.example", "Authorization": f"Bearer {_KEY}"}
    assert client.options("/v1/detect", headers={**_ASK, **evil}).status_code == 400
    assert "access-control-allow-origin" not in client.get("/v2", headers=evil).headers
