"""GET /livez, /healthz, /readyz, /metrics and /v1/model; / with the page whose files are in `serve/page/`."""

import json
from pathlib import Path

import torch
from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, JSONResponse
from prometheus_client.exposition import choose_encoder
from starlette.exceptions import HTTPException

from lensbox.serve.http.openapi import Health, Limits, ModelAnswer, problems
from lensbox.serve.http.service import service_of

router = APIRouter()
pages = APIRouter(include_in_schema=False)

_PAGE = {path.name: path for path in (Path(__file__).parents[1] / "page").iterdir()}
# The browser asks each time, so that a new version of the service shows at once.
_CACHING = {"Cache-Control": "no-cache"}


@router.get("/livez", response_model=Health, responses=problems(503), tags=["health"])
@router.get("/healthz", response_model=Health, include_in_schema=False)
async def livez(request: Request) -> Response:
    """200 while the process answers and its model is usable or loading; 503: restart the process.

    /healthz is the same.
    """
    service_of(request).check_alive()
    return JSONResponse({"status": "alive"})


@router.get("/readyz", response_model=Health, responses=problems(503), tags=["health"])
async def readyz(request: Request) -> Response:
    """200 once the model is loaded, self-tested and warmed up; 503: send requests to another instance."""
    service = service_of(request)
    service.check_available()
    missing = service.engine.missing
    return JSONResponse({"status": "ready", **({"missing": missing} if missing else {})})


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    tags=["metrics"],
)
def metrics(request: Request) -> Response:
    """Prometheus metrics of this service, in the format that the Accept header asks for."""
    encode, media_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(service_of(request).metrics.exposed()), headers={"Content-Type": media_type})


@router.get("/v1/model", response_model=ModelAnswer, responses=problems(503), tags=["model"])
async def model(request: Request) -> Response:
    """The artifact's metadata without the self-test's pixels; versions, device and limits of the service."""
    service = service_of(request)
    artifact = service.engine.ready_artifact()
    metadata = json.loads(artifact.metadata.to_json())
    metadata["self_test"]["image"].pop("pixels", None)
    metadata["service"] = {
        "version": request.app.version,
        "torch": torch.__version__,
        "device": str(artifact.device),
        "limits": {name: getattr(service.settings, name) for name in Limits.model_fields},
    }
    return JSONResponse(metadata)


@pages.get("/")
async def page() -> FileResponse:
    """A page that shows detections in pictures and the camera. It calls /v1/model and /v1/detect."""
    return await page_file("index.html")


@pages.get("/page/{name}")
async def page_file(name: str) -> FileResponse:
    """A script, style or icon of the page."""
    if name not in _PAGE:
        raise HTTPException(404)
    return FileResponse(_PAGE[name], headers=_CACHING)
