"""The files of the page at /, over HTTP."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from problems import problem_of
from services import Start

import lensbox.serve

_FOLDER = Path(lensbox.serve.__file__).parent / "page"
_NAMES = sorted(path.name for path in _FOLDER.iterdir())


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/docs", "text/html; charset=utf-8"),
        ("/page/style.css", "text/css; charset=utf-8"),
        ("/page/script.js", "text/javascript; charset=utf-8"),
        ("/page/icon.svg", "image/svg+xml"),
    ],
)
def test_serves_files_unchanged_with_caching_headers(
    client: httpx.Client, path: str, media_type: str
) -> None:
    response = client.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"] == media_type
    name = {"/": "index.html", "/docs": "docs.html"}.get(path, path.removeprefix("/page/"))
    assert response.content == (_FOLDER / name).read_bytes()
    assert response.headers["cache-control"] == "no-cache"
    again = client.get(path, headers={"If-None-Match": response.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["nothing.js", "__init__.py", "..%2fapp.py", "%2e%2e/app.py", "a/b.js"])
def test_serves_no_other_files(client: httpx.Client, name: str) -> None:
    response = client.get(f"/page/{name}")
    assert response.status_code == 404
    assert problem_of(response)["code"] == "not_found"


def test_files_have_no_external_or_inline_code() -> None:
    for name in _NAMES:
        text = (_FOLDER / name).read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://\w|\bstyle=|\bon\w+=\"", text), name
    for page in ("index.html", "docs.html"):
        html = (_FOLDER / page).read_text(encoding="utf-8")
        assert re.findall(r"<script\b[^>]*>(.*?)</script>", html) == [""]
        assert "<style" not in html
    # Relative, so that a proxy may have the service below a path.
    targets = re.findall(r'(?:src|href)="([^"]*)"', (_FOLDER / "index.html").read_text(encoding="utf-8"))
    assert [target for target in targets if not target.startswith("page/")] == []


def test_no_page_disables_the_pages(start_service: Start, fake: Any) -> None:
    client = start_service(lambda: fake, no_page=True).client
    for path in ("/", "/page/style.css"):
        assert problem_of(client.get(path))["code"] == "not_found"
    assert start_service(lambda: fake).client.get("/").status_code == 200
