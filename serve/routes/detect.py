"""POST /v1/detect."""

from concurrent.futures import Future
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from lensbox.runtime import Detections, Photo
from lensbox.runtime.detection_json import detections_to_json
from lensbox.serve.answering import result_for
from lensbox.serve.engine.jobs import DetectJob
from lensbox.serve.following import followed
from lensbox.serve.form import IMAGE_FIELDS
from lensbox.serve.request_body import receive
from lensbox.serve.schemas import DetectAnswer, DetectParameters, problems
from lensbox.serve.service import service_of

router = APIRouter(tags=["detect"])

_BINARY = {"type": "string", "format": "binary"}
_FORM = {
    "type": "object",
    "properties": dict.fromkeys(IMAGE_FIELDS, _BINARY),
    "minProperties": 1,
    "maxProperties": 1,
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"multipart/form-data": {"schema": _FORM}, "image/*": {"schema": _BINARY}},
    }
}


@router.post(
    "/v1/detect",
    response_model=DetectAnswer,
    responses=problems(400, 408, 413, 415, 422, 503, 504),
    openapi_extra=_BODY,
)
async def detect(request: Request, parameters: Annotated[DetectParameters, Query()]) -> JSONResponse:
    """What the detector finds in one image; GET /v1/model tells its name and classes.

    The body is a multipart form with the field `image` or `file`, or the bytes of the image file itself
    under any other Content-Type or none.
    """
    service = service_of(request)
    settings, instance = service.settings, service.instance
    service.check_ready()
    artifact = instance.ready_artifact()
    canvas, reading = artifact.metadata.canvas, artifact.reading(parameters.orientation)

    def ask(photo: Photo) -> "Future[Detections]":
        job = DetectJob(photo, parameters.score_threshold, parameters.iou_threshold)
        return instance.submit(job, deadline.at)

    with service.admitted():
        body, deadline = await receive(request, settings.max_body_bytes, settings)
        instance.check_room(deadline.at)
        content_type = request.headers.get("content-type")
        decoding = service.decoders.submit(body, content_type, canvas, reading, deadline.at)
        photo, found = await result_for(request, followed(decoding, ask), deadline)
    detections = detections_to_json(found, artifact.metadata.classes)
    # Not by way of the model: it would look at each number of each embedding once more.
    return JSONResponse({"width": photo.width, "height": photo.height, "detections": detections})
