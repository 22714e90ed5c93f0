"""Security headers with every answer, and CORS where it is configured."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

_SHOP = "https://shop.example"
_ASK = {"Origin": _SHOP, "Access-Control-Request-Method": "POST"}
_KEY = "alice-0123456789abcdef"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/healthz", 200), ("POST", "/v1/detect", 400), ("GET", "/nothing", 404), ("GET", "/v2/x", 404)],
)
def test_every_answer_has_them(client: httpx.Client, method: str, path: str, status: int) -> None:
    response = client.request(method, path)
    assert response.status_code == status
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"
    policy = response.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "script-src 'self';" in policy
    assert "default-src 'none';" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "blob:" not in policy
    assert "data:" not in policy


def test_a_defect_s_answer_has_them(start: Callable[..., Any], fake: Any, png: bytes) -> None:
    client = start(cors_origins=_SHOP).client
    fake.error = RuntimeError("a defect")
    response = client.post("/v1/detect", content=png, headers={"Origin": _SHOP})
    assert response.status_code == 500
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["access-control-allow-origin"] == _SHOP


def test_docs_load_nothing_from_other_hosts(client: httpx.Client) -> None:
    response = client.get("/docs")
    assert response.status_code == 200
    assert "://" not in response.text
    assert client.get("/page/docs.js").status_code == 200
    assert client.get("/redoc").status_code == 404


def test_cors_is_off_by_default(client: httpx.Client) -> None:
    response = client.options("/v1/detect", headers=_ASK)
    assert response.status_code == 405
    response = client.get("/v2", headers={"Origin": _SHOP})
    assert not [name for name in response.headers if name.startswith("access-control")]


def test_an_origin_may_ask_and_another_may_not(
    start_service: Callable[..., Any], fake: Any, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text(f"alice {_KEY}")
    origins = f"{_SHOP},http://localhost:3000"
    client = start_service(lambda: fake, cors_origins=origins, api_keys_file=tmp_path / "keys").client
    headers = {**_ASK, "Access-Control-Request-Headers": "authorization,content-type,x-request-timeout-ms"}
    # A browser asks without the key first.
    response = client.options("/v1/detect", headers=headers)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == _SHOP
    assert "access-control-allow-credentials" not in response.headers
    assert client.options("/v1/detect", headers={**_ASK, "Origin": "https://evil.example"}).status_code == 400
    # Its script may read a refusal, too.
    response = client.get("/v2", headers={"Origin": _SHOP})
    assert response.status_code == 401
    assert response.headers["access-control-allow-origin"] == _SHOP
    assert "X-Request-ID" in response.headers["access-control-expose-headers"]
    response = client.get("/v2", headers={"Origin": "https://evil.example", "X-API-Key": _KEY})
    assert response.status_code == 200
    assert "access-control-allow-origin" not in response.headers


def test_all_origins(start_service: Callable[..., Any], fake: Any) -> None:
    client = start_service(lambda: fake, cors_origins="*").client
    response = client.get("/v2", headers={"Origin": _SHOP})
    assert response.headers["access-control-allow-origin"] == "*"
