"""GET /: a page that shows detections in pictures and the camera. GET /docs: a page that shows /openapi.json.

The files of both pages are in `serve/page/`.
"""

import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

router = APIRouter(include_in_schema=False)

_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# The browser revalidates its copy each time, so that a new version of the service shows at once.
_CACHING = {"Cache-Control": "no-cache"}


class _File(NamedTuple):
    content: bytes
    media_type: str
    etag: str


@cache
def _files() -> dict[str, _File]:
    """Return the files of both pages by name. Skip files of other types, such as an editor's."""
    found = {}
    for path in files("lensbox.serve").joinpath("page").iterdir():
        media_type = _MEDIA_TYPES.get(f".{path.name.rpartition('.')[2]}")
        if media_type is not None:
            content = path.read_bytes()
            found[path.name] = _File(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found


@router.get("/")
async def page(request: Request) -> Response:
    """The page. It calls /v1/model and /v1/detect."""
    return _answer(request, "index.html")


@router.get("/docs")
async def docs(request: Request) -> Response:
    """A page that shows /openapi.json. It loads nothing from other hosts."""
    return _answer(request, "docs.html")


@router.get("/page/{name}")
async def page_file(request: Request, name: str) -> Response:
    """A script, style or icon of the pages."""
    return _answer(request, name)


def _answer(request: Request, name: str) -> Response:
    file = _files().get(name)
    if file is None:
        raise HTTPException(404)
    headers = {**_CACHING, "ETag": file.etag}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
