"""POST /v1/detect."""

from concurrent.futures import Future
from typing import Any

from fastapi import Request

from lensbox.common.detect_options import tile_spec
from lensbox.common.errors import InputError
from lensbox.runtime import Photo
from lensbox.runtime.detect.detection import DetectionArrays, detections_to_json
from lensbox.runtime.detect.tiles import tile_windows
from lensbox.runtime.images.gpu_jpeg import coded_photo
from lensbox.serve.engine.jobs import CodedJob, DetectJob, TiledJob
from lensbox.serve.errors import ApiError
from lensbox.serve.http.service import model_of, service_of
from lensbox.serve.requests.body import FORM, JSON, Body, media_type, receive
from lensbox.serve.requests.decoding import hint_of_form
from lensbox.serve.requests.detect_request import DetectParameters, query_parameters, read_detect_request
from lensbox.serve.requests.futures import Deadline, result_for


async def detect(request: Request) -> Any:
    """Detections in one image.

    The body is an image file; a multipart form with one field `image` or `file`; or JSON with the file in
    base64, and parameters beside it.
    """
    service = service_of(request)
    service.check_decoders()
    asked = query_parameters(request, DetectParameters)
    file, deadline = await receive(request, service.settings.max_body_bytes, service.settings)
    content_type = request.headers.get("content-type", "")
    if media_type(content_type) in (FORM, JSON):
        reading = service.json_parser.submit(read_detect_request, file, content_type, asked)
        file, asked = await result_for(request, reading, deadline)
    metadata = model_of(request).model.metadata
    try:
        found = await _find(request, file, asked, deadline)
    except ApiError as error:
        if error.code == "undecodable_image" and "--data-binary" not in error.message:
            error.message += hint_of_form(content_type)
        raise
    detections = detections_to_json(found, metadata.classes)
    return {"width": found.width, "height": found.height, "detections": detections}


async def _find(request: Request, file: Body, asked: DetectParameters, deadline: Deadline) -> DetectionArrays:
    """Decode a file and detect. Raises NotReadyError.

    The engine decodes JPEG files that its GPU takes, unless the file is alone: a single file is decoded
    faster here. A front end hands over no more files than the engine has room for: decoding here
    delays further files, which would be refused. A file that the engine rejects is decoded here, too.
    """
    service = service_of(request)
    engine = model_of(request).engine
    artifact = engine.ready_artifact()
    metadata = artifact.metadata
    reading = artifact.reading(asked.orientation, full_size=asked.tiles is not None)
    is_alone = service.is_calm and not engine.serves_others
    if artifact.decodes_jpeg and asked.tiles is None and not is_alone and engine.room > 0:
        coded = coded_photo("", file, metadata.canvas, reading)
        if coded is not None and coded.width * coded.height <= service.settings.max_pixels:
            job = CodedJob(coded, asked.score_threshold, asked.iou_threshold)
            found: DetectionArrays | None = await result_for(
                request, engine.submit(job, deadline.at), deadline
            )
            if found is not None:
                return found

    def infer(photo: Photo) -> "Future[Any]":
        """Submit the job of a photograph. Raises ApiError (422) for too many tiles."""
        if asked.tiles is None:
            return engine.submit(DetectJob(photo, asked.score_threshold, asked.iou_threshold), deadline.at)
        try:
            windows = tile_windows(photo.width, photo.height, metadata.canvas, tile_spec(asked.tiles))
        except InputError as error:
            raise ApiError(422, "invalid_parameter", str(error)) from None
        iou = metadata.iou_threshold if asked.iou_threshold is None else asked.iou_threshold
        return engine.submit(TiledJob(photo, windows, asked.score_threshold, iou), deadline.at)

    finding = service.decoders.submit(bytes(file), metadata.canvas, reading, deadline.at, infer, is_alone)
    decoded: DetectionArrays = await result_for(request, finding, deadline)
    return decoded
