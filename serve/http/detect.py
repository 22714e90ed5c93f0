"""POST /v1/detect."""

from concurrent.futures import Future
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from lensbox.common.detect_options import tile_spec
from lensbox.common.errors import InputError
from lensbox.runtime import Detections, Photo
from lensbox.runtime.detect.detection import DetectionArrays, detections_to_json
from lensbox.runtime.detect.tiles import tile_windows
from lensbox.runtime.file.metadata import ArtifactMetadata
from lensbox.runtime.images.gpu_jpeg import coded_photo
from lensbox.serve.engine.jobs import CodedJob, DetectJob, Job, TiledJob
from lensbox.serve.errors import ApiError
from lensbox.serve.http.openapi import BINARY
from lensbox.serve.http.service import deadline_of_request, service_of
from lensbox.serve.requests.body import Body, content_encoding, receive
from lensbox.serve.requests.detect_request import (
    JSON,
    DetectParameters,
    DetectQuestion,
    query_parameters,
    read_detect_request,
    wraps_image,
)
from lensbox.serve.requests.form import FORM
from lensbox.serve.requests.futures import Deadline, chained, result_for
from lensbox.serve.requests.image_file import hint_of_form

_FORM_FIELDS = {
    "type": "object",
    "properties": {"image": BINARY, "file": BINARY},
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
}
BODIES = {FORM: _FORM_FIELDS, "image/*": BINARY, JSON: DetectQuestion.model_json_schema()}


async def detect(request: Request) -> Response:
    """Detections in one image.

    The body is an image file; a multipart form with one field `image` or `file`; or JSON with the file in
    base64, and parameters beside it.
    """
    service, deadline = service_of(request), deadline_of_request(request)
    settings = service.settings
    service.check_ready()
    asked = query_parameters(request, DetectParameters)
    content_encoding(request, ("identity",))
    file: Body
    file, deadline = await receive(request, settings.max_body_bytes, settings, deadline)
    content_type = request.headers.get("content-type", "")
    if wraps_image(content_type):
        reading = service.json_parser.submit(read_detect_request, bytes(file), content_type, asked)
        file, asked = await result_for(request, reading, deadline)
    try:
        answer = await _find(request, file, asked, deadline)
    except ApiError as error:
        if error.code == "undecodable_image" and "--data-binary" not in error.message:
            error.message += hint_of_form(content_type)
        raise
    # Without validation by DetectAnswer, which would check each number of each embedding again.
    return JSONResponse(answer)


async def _find(request: Request, file: Body, asked: DetectParameters, deadline: Deadline) -> dict[str, Any]:
    """Decode a file and detect; return the answer. Raises NotReadyError.

    The engine decodes JPEG files that its GPU takes, unless the file is alone: a single file is decoded
    faster here. A front end hands over no more files than its share of the engine's places: decoding here
    delays further files, which would be refused. A file that the engine rejects is decoded here, too.
    """
    service = service_of(request)
    artifact = service.engine.ready_artifact()
    metadata = artifact.metadata
    reading = artifact.reading(asked.orientation, full_size=asked.tiles is not None)
    share = max(1, service.engine.places // (service.settings.frontends or 1))
    is_alone = service.is_calm
    if artifact.decodes_jpeg and asked.tiles is None and not is_alone and service.engine.waiting < share:
        coded = coded_photo("", file, metadata.canvas, reading)
        if coded is not None and coded.width * coded.height <= service.settings.max_pixels:
            job = CodedJob(coded, asked.score_threshold, asked.iou_threshold)
            detections = await result_for(request, service.engine.submit(job, deadline.at), deadline)
            if detections is not None:
                return _answer(coded.width, coded.height, detections, metadata)

    def infer(photo: Photo) -> "Future[DetectionArrays | Detections]":
        return service.engine.submit(_job(photo, asked, metadata), deadline.at)

    decoding = service.decoders.submit(bytes(file), metadata.canvas, reading, deadline.at, is_alone)
    photo, found = await result_for(request, chained(decoding, infer), deadline)
    return _answer(photo.width, photo.height, found, metadata)


def _job(
    photo: Photo, asked: DetectParameters, metadata: ArtifactMetadata
) -> Job[DetectionArrays | Detections]:
    """Return the job of a photograph. Raises ApiError (422) for too many tiles."""
    if asked.tiles is None:
        return DetectJob(photo, asked.score_threshold, asked.iou_threshold)
    try:
        windows = tile_windows(photo.width, photo.height, metadata.canvas, tile_spec(asked.tiles))
    except InputError as error:
        raise ApiError(422, "invalid_parameter", str(error)) from None
    iou = metadata.iou_threshold if asked.iou_threshold is None else asked.iou_threshold
    return TiledJob(photo, windows, asked.score_threshold, iou)


def _answer(
    width: int, height: int, found: DetectionArrays | Detections, metadata: ArtifactMetadata
) -> dict[str, Any]:
    detections = detections_to_json(found, metadata.classes)
    return {"width": width, "height": height, "detections": detections}
