"""API keys in a file or in the environment, and authentication of requests."""

from pathlib import Path
from typing import Any

import pytest
from services import Start
from starlette.datastructures import Headers

from lensbox.serve.errors import StartupError
from lensbox.serve.http.api_keys import Keys, read_keys
from lensbox.serve.http.paths import ENDPOINTS
from lensbox.serve.settings import Settings

_ALICE, _BOB = "alice-0123456789abcdef", "bob-0123456789abcdef"
_PROBES = ["/livez", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"]
_OPEN = ["/", "/page/script.js", "/docs", "/docs-files/swagger-ui.css", "/openapi.json", *_PROBES]


def _read(**settings: Any) -> Keys:
    return read_keys(Settings(Path("unused"), **settings))


@pytest.mark.parametrize("text", [f"# É, hers\n\n  {_ALICE}\r\n{_BOB}\n", f"{_ALICE}, {_BOB},"])
def test_reads_a_file_or_else_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    both, other = (_ALICE.encode(), _BOB.encode()), tmp_path / "other"
    assert _read() == Keys()
    (tmp_path / "keys").write_text(text, "utf-8-sig")  # with the mark that Windows adds
    assert _read(api_keys_file=tmp_path / "keys").api == both
    monkeypatch.setenv("LENSBOX_API_KEYS", text)
    monkeypatch.setenv("LENSBOX_ADMIN_KEY", _ALICE)
    assert _read() == Keys(both, both[0])
    other.write_text(_BOB)
    assert _read(api_keys_file=other, admin_key_file=other) == Keys(both[1:], both[1])


def test_an_admin_key_may_be_an_api_key_too() -> None:
    keys, headers = Keys((_ALICE.encode(),), _ALICE.encode()), Headers({"Authorization": f"Bearer {_ALICE}"})
    keys.check(headers)
    keys.check_admin(headers)


def test_rejects_invalid_keys_without_showing_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("secret", "s" * 257, "secret of a spaced key", "secret-clé-du-navigateur"):
        (tmp_path / "keys").write_text(f"{_ALICE}\n{wrong}", "utf-8")
        with pytest.raises(StartupError) as caught:
            _read(api_keys_file=tmp_path / "keys")
        rule = f"key 2 must be 16 to 256 visible ASCII characters, got {len(wrong)} characters"
        assert str(caught.value).endswith(f"/keys: {rule}")
    monkeypatch.setenv("LENSBOX_ADMIN_KEY", f"{_ALICE},{_BOB}")
    with pytest.raises(StartupError, match=r"^there must be one admin key, got 2$"):
        _read()
    monkeypatch.setenv("LENSBOX_API_KEYS", "# none")
    with pytest.raises(StartupError, match=r"^LENSBOX_API_KEYS must have at least one key, got none$"):
        _read()


def test_only_probes_and_pages_are_open_without_a_known_key(
    start: Start, tmp_path: Path, fake: Any, png: bytes
) -> None:
    (tmp_path / "keys").write_text(f"{_ALICE}\n{_BOB}\n")
    guarded = start(api_keys_file=tmp_path / "keys").client
    for path in _OPEN:
        assert guarded.get(path).status_code == 200, path
    for one in ENDPOINTS:
        if not one.is_open:
            response = guarded.request(one.method, one.path)
            assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer"), one.path
    assert guarded.get("/nothing").status_code == 404
    for headers, got in (
        ([f"Bearer {_ALICE}"], ""),
        ([f"bearer  {_BOB}"], ""),
        ([f"Bearer {_ALICE}x"], "an unknown key"),
        ([f"Bearer {_ALICE[:-1]}"], "an unknown key"),
        ([f"Bearer {_ALICE}", f"Bearer {_BOB}"], "an unknown key"),
        ([f"Basic {_ALICE}"], "none"),
        ([_ALICE], "none"),
        (["Bearer"], "none"),
        ([], "none"),
    ):
        fake.calls.clear()
        named = [("Authorization", one) for one in headers]
        response = guarded.post("/v1/detect", content=png, headers=named)
        assert (response.status_code, len(fake.calls)) == ((401, 0) if got else (200, 1))
        message = f"send an API key as 'Authorization: Bearer KEY', got {got}"
        assert not got or (response.json()["code"], response.json()["detail"]) == ("unauthorized", message)
    (tmp_path / "admin").write_text(_BOB[::-1])
    both = start(api_keys_file=tmp_path / "keys", admin_key_file=tmp_path / "admin").client
    load = "/v2/repository/models/fake/load"
    for key, status in ((f"{_ALICE}x", 401), (_ALICE, 403), (_BOB[::-1], 409)):
        assert both.post(load, headers={"Authorization": f"Bearer {key}"}).status_code == status
    document = guarded.get("/openapi.json").json()
    assert document["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert ("security" in operation) == (path not in _OPEN), path
