"""Health, metrics, models and versions for GET requests; / with the page whose files are in `serve/page/`."""

import asyncio
import json
from collections import defaultdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from fastapi import Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import FileResponse
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from lensbox.serve.errors import ApiError, shortened
from lensbox.serve.http.answers import Health, ModelMetadata
from lensbox.serve.http.service import model_of, service_of
from lensbox.serve.http.v2 import model_tensors
from lensbox.serve.models.served import ModelVersion

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
        {"name": served.name, "version": served.version, "default": served is models.all[0]}
        for served in models.wanted
    ]
    return {"models": rows}


async def server_metadata(request: Request) -> Any:
    """Name, version and extensions of this server."""
    extensions = ["binary_tensor_data", "model_configuration", "model_repository", "statistics"]
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


async def model_config(request: Request) -> Any:
    """Inputs and outputs in the form of Triton's model configuration, for perf_analyzer."""
    served = model_of(request)
    inputs, outputs = (
        [{"name": one.name, "data_type": f"TYPE_{one.datatype}", "dims": one.shape} for one in specs.values()]
        for specs in model_tensors(served.model.metadata)
    )
    return {
        "name": served.name,
        "platform": "lensbox",
        "backend": "lensbox",
        "max_batch_size": 0,  # the shapes include the batch dimension
        "input": [{**one, "optional": one["name"] != "images"} for one in inputs],
        "output": outputs,
    }


async def model_statistics(request: Request) -> Any:
    """Counts and times of a model, or of all models, in the form of Triton's statistics, from the metrics.

    /v1/detect counts, too. Triton counts from the load of a version, this service from its own start.
    """
    service, named = service_of(request), request.path_params
    chosen = [model_of(request)] if "name" in named else service.models.wanted
    exposed = service.metrics.exposed
    return await asyncio.to_thread(lambda: {"model_stats": [_statistics(one, exposed()) for one in chosen]})


def _statistics(served: ModelVersion, registry: CollectorRegistry) -> dict[str, Any]:
    sums: defaultdict[tuple[str, str], float] = defaultdict(float)
    for sample in (sample for family in registry.collect() for sample in family.samples):
        labels = sample.labels
        if labels.get("model") == served.name:
            kind = labels.get("stage") or ("200" if labels.get("status", "200") == "200" else "fail")
            sums[sample.name, kind] += sample.value

    def duration(name: str, kind: str) -> dict[str, int]:
        count, seconds = (sums[f"lensbox_{name}_{end}", kind] for end in ("count", "sum"))
        return {"count": int(count), "ns": int(1e9 * seconds)}

    good, failed = (int(sums["lensbox_requests_total", kind]) for kind in ("200", "fail"))
    return {
        "name": served.name,
        "version": served.version,
        "last_inference": 0,  # unknown
        "inference_count": int(sums["lensbox_batch_images_sum", "200"]),
        "execution_count": int(sums["lensbox_batch_images_count", "200"]),
        "inference_stats": {
            "success": {**duration("request_seconds", "200"), "count": good},
            "fail": {"count": failed, "ns": 0},
            "queue": duration("stage_seconds", "queue"),
            "compute_input": duration("stage_seconds", "decode"),
            "compute_infer": duration("stage_seconds", "inference"),
            "compute_output": {"count": 0, "ns": 0},
        },
        "batch_stats": [],
    }


async def docs(_: Request) -> Response:
    """Swagger UI for /openapi.json. All addresses are relative, as a proxy may add a prefix."""
    place = "docs-files"
    return get_swagger_ui_html(
        openapi_url="openapi.json",
        title="Lensbox",
        swagger_js_url=f"{place}/swagger-ui-bundle.js",
        swagger_css_url=f"{place}/swagger-ui.css",
        swagger_favicon_url="page/icon.svg",
    )


async def docs_file(request: Request) -> Response:
    """The script or the style of Swagger UI."""
    name = request.path_params["name"]
    if name not in ("swagger-ui-bundle.js", "swagger-ui.css"):
        raise ApiError(404, "not_found", f"Swagger UI has no file {shortened(name)}")
    # Only the files of the package: they are the newest Swagger UI, which OpenAPI 3.1 needs.
    return FileResponse(str(files("fastapi_offline") / "static" / name), headers=_CACHING)


async def page(_: Request) -> Response:
    """A page that shows detections in pictures and the camera. It calls /v1/model and /v1/detect."""
    return FileResponse(_PAGE["index.html"], headers=_CACHING)


async def page_file(request: Request) -> Response:
    """A script, style or icon of the page."""
    name = request.path_params["name"]
    if name not in _PAGE:
        raise ApiError(404, "not_found", f"the page has no file {shortened(name)}")
    return FileResponse(_PAGE[name], headers=_CACHING)
