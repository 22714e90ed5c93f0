"""POST /v1/detect: the parameters and the image of a request, decoding, and the job."""

import base64
import re
from concurrent.futures import Future
from itertools import chain
from typing import Annotated, Any

from fastapi import Request
from msgspec import Meta, Struct
from msgspec.json import Decoder
from msgspec.structs import asdict

from lensbox.common.canvas import Canvas
from lensbox.common.detect_options import TileSpec, check_thresholds, tile_spec
from lensbox.common.errors import InputError
from lensbox.common.fields import Orientation
from lensbox.runtime import Photo
from lensbox.runtime.detect.detection import DetectionArrays, detections_to_json
from lensbox.runtime.detect.tiles import Window, merge_tiles, part_of, tile_windows
from lensbox.runtime.images.gpu_jpeg import coded_photo
from lensbox.serve.engine.jobs import CodedJob, DetectJob, Thresholds, TiledJob
from lensbox.serve.errors import ApiError, shown
from lensbox.serve.http.service import model_of, service_of
from lensbox.serve.requests.body import (
    FORM,
    JSON,
    Body,
    form_image,
    media_type,
    query_parameters,
    read_json,
    receive,
)
from lensbox.serve.requests.futures import Deadline, result_for, results_in_turn

_FRACTION = {"minimum": 0, "maximum": 1}
_DATA_URI = re.compile(r"^data:[^,]{0,200};base64,", re.IGNORECASE)


def _meta(description: str, **schema: float) -> Meta:
    return Meta(description=description, extra_json_schema=schema)


class DetectParameters(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Query parameters of /v1/detect. A misspelled name is an error, not a default."""

    score_threshold: Annotated[
        float | None, _meta("return detections with a score above this", **_FRACTION)
    ] = None
    iou_threshold: Annotated[
        float | None, _meta("of two detections that overlap more, keep the one of higher score", **_FRACTION)
    ] = None
    orientation: Annotated[
        Orientation | None, _meta("exif: rotate the photograph by its EXIF data; stored: do not rotate")
    ] = None
    tiles: Annotated[
        str | None,
        _meta("detect small objects in overlapping tiles of a large photograph: auto, SIZE or SIZE,OVERLAP"),
    ] = None

    def __post_init__(self) -> None:
        check_thresholds(score_threshold=self.score_threshold, iou_threshold=self.iou_threshold)
        if self.tiles is not None:
            tile_spec(self.tiles)

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds of score and IoU. None stands for the model's default."""
        return self.score_threshold, self.iou_threshold


class DetectQuestion(DetectParameters, frozen=True, kw_only=True):
    """A JSON body of /v1/detect."""

    image: Annotated[str, Meta(description="an image file in base64, or a data: URI of one")]


_QUESTION = Decoder(DetectQuestion)


async def detect(request: Request) -> Any:
    """Detections in one image.

    The body is an image file; a multipart form with one field `image` or `file`; or JSON with the file in
    base64, and parameters beside it.
    """
    service = service_of(request)
    service.decoders.check()
    asked = query_parameters(request, DetectParameters)
    file, deadline = await receive(request, service.settings.max_body_bytes, service.settings)
    content_type = request.headers.get("content-type", "")
    if media_type(content_type) in (FORM, JSON):
        reading = service.json_parser.submit(read_detect_request, file, content_type, asked)
        file, asked = await result_for(request, reading, deadline)
    metadata = model_of(request).model.metadata
    if asked.tiles is None:
        found = await _find(request, file, asked, deadline)
    else:
        found = await _find_in_tiles(request, file, asked, tile_spec(asked.tiles), deadline)
    detections = detections_to_json(found, metadata.classes)
    return {"width": found.width, "height": found.height, "detections": detections}


async def _find(request: Request, file: Body, asked: DetectParameters, deadline: Deadline) -> DetectionArrays:
    """Decode a file and detect. Raises NotReadyError.

    The engine decodes JPEG files that its GPU takes, unless the file is alone: a single file is decoded
    faster here. A front end hands over no more files than the engine has room for: decoding here
    delays further files, which would be refused. A file that the engine rejects is decoded here, too.
    """
    service, served = service_of(request), model_of(request)
    engine, name = served.engine, served.name
    artifact = engine.ready_artifact()
    canvas, reading = artifact.metadata.canvas, artifact.metadata.reading.asked(asked.orientation)
    is_alone = service.is_calm and not engine.serves_others
    if artifact.decodes_jpeg and not is_alone and engine.room > 0:
        coded = coded_photo(file, canvas, reading)
        if coded is not None and coded.width * coded.height <= service.settings.max_pixels:
            job = CodedJob.of(asked.thresholds, coded)
            found: DetectionArrays | None = await result_for(
                request, engine.submit(job, deadline.at), deadline
            )
            if found is not None:
                return found

    def infer(photo: Photo) -> "Future[DetectionArrays]":
        return engine.submit(DetectJob(asked.thresholds, photo), deadline.at)

    finding = service.decoders.submit(bytes(file), canvas, reading, deadline.at, infer, name, is_alone)
    decoded: DetectionArrays = await result_for(request, finding, deadline)
    return decoded


async def _find_in_tiles(
    request: Request, file: Body, asked: DetectParameters, spec: TileSpec, deadline: Deadline
) -> DetectionArrays:
    """Decode a file and detect in its tiles, in jobs of one batch each. Raises NotReadyError."""
    service, served = service_of(request), model_of(request)
    engine = served.engine
    artifact = engine.ready_artifact()
    metadata = artifact.metadata
    reading = metadata.reading.asked(asked.orientation, full_size=True)
    # Tiles are many pixels to copy, and many boxes to merge: not in the event loop.
    in_thread = service.json_parser.submit

    def cut(photo: Photo) -> "Future[tuple[Photo, list[Window]]]":
        return in_thread(_tiles, photo, metadata.canvas, spec)

    decoding = service.decoders.submit(bytes(file), metadata.canvas, reading, deadline.at, cut, served.name)
    photo, windows = await result_for(request, decoding, deadline)
    iou = metadata.defaults.iou_threshold if asked.iou_threshold is None else asked.iou_threshold
    most = artifact.largest_batch
    batches = [windows[start : start + most] for start in range(0, len(windows), most)]

    def infer(batch: list[Window]) -> "Future[Future[list[DetectionArrays]]]":
        return in_thread(engine.submit, TiledJob(asked.thresholds, part_of(photo, batch), batch), deadline.at)

    found = await results_in_turn(request, batches, infer, deadline)
    merging = in_thread(merge_tiles, [*chain(*found)], windows, photo.width, photo.height, iou)
    merged: DetectionArrays = await result_for(request, merging, deadline)
    return merged


def _tiles(photo: Photo, canvas: Canvas, spec: TileSpec) -> tuple[Photo, list[Window]]:
    """Return a photograph and its windows. Raises ApiError (422) for too many tiles."""
    try:
        return photo, tile_windows(photo.width, photo.height, canvas, spec)
    except InputError as error:
        raise ApiError(422, "invalid_parameter", str(error)) from None


def read_detect_request(
    body: Body, content_type: str, parameters: DetectParameters
) -> tuple[Body, DetectParameters]:
    """Return the image file in a form or in JSON, and all parameters, of which those in the query count more.

    Raises ApiError: 400 for a malformed form or base64; 422 for other fields and other JSON.
    """
    if media_type(content_type) == FORM:
        return form_image(body, content_type), parameters
    question = read_json(body, _QUESTION, 422, "invalid_body")
    try:
        image = base64.b64decode(_DATA_URI.sub("", question.image), validate=True)
    except ValueError as error:
        rule = "image must be a file in base64, or a data: URI of base64"
        got = f"{shown(question.image)}: {error}"
        raise ApiError(400, "undecodable_image", f"{rule}, got {got}") from None
    # Not the question, which would keep the text of the image until the answer.
    asked = {name: getattr(question, name) for name in parameters.__struct_fields__}
    asked |= {name: value for name, value in asdict(parameters).items() if value is not None}
    return image, DetectParameters(**asked)
