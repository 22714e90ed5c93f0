"""GET /v1/model."""

import json
from typing import Any

import torch
from fastapi import APIRouter, Request

from lensbox.serve.schemas import problems
from lensbox.serve.service import service_of

router = APIRouter(tags=["model"])


@router.get("/v1/model", responses=problems(503))
async def model(request: Request) -> dict[str, Any]:
    """The artifact's metadata without the pixels of its self-test, and what serves it."""
    service = service_of(request)
    artifact = service.instance.ready_artifact()
    metadata = json.loads(artifact.metadata.to_json())
    image = {key: value for key, value in metadata["self_test"]["image"].items() if key != "pixels"}
    limits = {
        name: getattr(service.settings, name)
        for name in ("max_body_bytes", "max_json_bytes", "max_pixels", "max_boxes", "max_images")
    }
    return {
        **metadata,
        "self_test": {**metadata["self_test"], "image": image},
        "service": {
            "version": request.app.version,
            "torch": torch.__version__,
            "device": str(artifact.device),
            "limits": limits,
        },
    }
