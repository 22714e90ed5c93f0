"""Health, metrics, models and versions for GET requests; / with the page whose files are in `serve/page/`."""

import asyncio
import json
from pathlib import Path
from typing import Any

import torch
from fastapi import Request, Response
from fastapi.responses import FileResponse
from prometheus_client.exposition import choose_encoder

from lensbox.serve.errors import ApiError, shown
from lensbox.serve.http.answers import Health, ModelMetadata
from lensbox.serve.http.service import model_of, service_of
from lensbox.serve.http.v2 import model_tensors

_PAGE = {path.name: path for path in (Path(__file__).parents[1] / "page").iterdir()}
# The browser asks each time, so that a new version of the service shows at once.
_CACHING = {"Cache-Control": "no-cache"}
_LIMITS = ("max_body_bytes", "max_json_bytes", "max_pixels", "max_boxes")


async def livez(_: Request) -> Any:
    """200 while the process answers; else restart it. /healthz is the same."""
    return Health("alive")


async def readyz(request: Request) -> Any:
    """200 once the model is loaded, self-tested and warmed up; 503: send requests to another instance."""
    service = service_of(request)
    service.check_available()
    wanted = service.models.wanted
    missing = [reason for served in wanted for reason in served.engine.missing]
    return Health("ready", {served.name: served.version for served in wanted}, missing)


async def metrics(request: Request) -> Response:
    """Prometheus metrics of this service, in the format that the Accept header asks for."""
    encode, media_type = choose_encoder(request.headers.get("accept", ""))
    exposed = service_of(request).metrics.exposed
    content = await asyncio.to_thread(lambda: encode(exposed()))  # reads files
    return Response(content, headers={"Content-Type": media_type})


async def model(request: Request) -> Any:
    """The artifact's metadata without the self-test's pixels; versions, device and limits of the service."""
    service, served = service_of(request), model_of(request)
    artifact = served.model
    metadata = json.loads(artifact.metadata.to_json())
    metadata["self_test"]["image"].pop("pixels", None)
    metadata["service"] = {
        "model": served.name,
        "model_version": served.version,
        "version": request.app.version,
        "torch": str(torch.__version__),
        "device": str(artifact.device),
        "limits": {name: getattr(service.settings, name) for name in _LIMITS},
    }
    return metadata


async def models(request: Request) -> Any:
    """The models that are served, with the versions that serve. The default model is the first."""
    models = service_of(request).models
    models.check_loaded()
    rows = [
        {"name": served.name, "version": served.version, "default": served is models.default}
        for served in models.wanted
    ]
    return {"models": rows}


async def server_metadata(request: Request) -> Any:
    """Name, version and extensions of this server."""
    extensions = ["binary_tensor_data", "model_repository"]
    return {"name": "lensbox", "version": request.app.version, "extensions": extensions}


async def server_live(_: Request) -> Any:
    """The same as /livez."""
    return {"live": True}


async def server_ready(request: Request) -> Any:
    """The same as /readyz."""
    service_of(request).check_available()
    return {"ready": True}


async def model_ready(request: Request) -> Any:
    """200 while /readyz answers 200."""
    served = model_of(request)
    served.engine.ready_artifact()
    service_of(request).check_available()
    return {"name": served.name, "ready": True}


async def model_metadata(request: Request) -> Any:
    """Inputs and outputs of the model. All inputs but `images` may be left out."""
    served = model_of(request)
    inputs, outputs = (tuple(specs.values()) for specs in model_tensors(served.model.metadata))
    return ModelMetadata(served.name, [served.version], "lensbox", inputs, outputs)


async def page(_: Request) -> Response:
    """A page that shows detections in pictures and the camera. It calls /v1/model and /v1/detect."""
    return FileResponse(_PAGE["index.html"], headers=_CACHING)


async def page_file(request: Request) -> Response:
    """A script, style or icon of the page."""
    name = request.path_params["name"]
    if name not in _PAGE:
        raise ApiError(404, "not_found", f"the page has no file {shown(name)}")
    return FileResponse(_PAGE[name], headers=_CACHING)
