"""GET /: a page that shows detections in pictures and the camera. Its files are in `serve/page/`."""

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse
from starlette.exceptions import HTTPException

router = APIRouter(include_in_schema=False)

_FILES = {path.name: path for path in (Path(__file__).parents[1] / "page").iterdir()}
# The browser asks each time, so that a new version of the service shows at once.
_CACHING = {"Cache-Control": "no-cache"}


@router.get("/")
async def page() -> FileResponse:
    """The page. It calls /v1/model and /v1/detect."""
    return await page_file("index.html")


@router.get("/page/{name}")
async def page_file(name: str) -> FileResponse:
    """A script, style or icon of the page."""
    if name not in _FILES:
        raise HTTPException(404)
    return FileResponse(_FILES[name], headers=_CACHING)
