"""POST /v1/detect: the way of a photograph from the request to its answer."""

from itertools import chain
from typing import Annotated, Any

from msgspec import Meta, Struct

from lensbox.common.detections import TileSpec, check_thresholds, tile_spec
from lensbox.common.errors import InputError
from lensbox.common.fields import Orientation
from lensbox.runtime import Photo
from lensbox.runtime.detect.tiles import merge_tiles, part_of, tile_windows
from lensbox.runtime.images.gpu_jpeg import coded_photo
from lensbox.serve.engine.jobs import CodedJob, DetectJob, Found, Thresholds, TiledJob
from lensbox.serve.errors import ApiError
from lensbox.serve.http.service import Call
from lensbox.serve.requests.body import image_file, query_parameters, receive

_FRACTION = {"minimum": 0, "maximum": 1}


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


async def detect(call: Call) -> Any:
    """Detections in one image.

    The body is an image file, or a multipart form with one file, `image` or `file`.
    """
    asked: DetectParameters = query_parameters(call.request.scope["query_string"], DetectParameters)
    decoders, settings, metadata = call.service.decoders, call.service.settings, call.model.metadata
    decoders.check()
    body = await receive(call.request, settings.max_body_bytes, call.limit, settings)
    file, submit = await image_file(call.request, body), call.served.engine.submit
    thresholds, found = (asked.score_threshold, asked.iou_threshold), None
    reading = metadata.reading.asked(asked.orientation, full_size=asked.tiles is not None)
    if call.model.decodes_jpeg and asked.tiles is None:  # the engine's GPU decodes it
        coded = coded_photo(file, metadata.canvas, reading)
        if coded is not None and coded.width * coded.height <= settings.max_pixels:
            found = await submit(CodedJob.of(thresholds, coded), call.limit.at)
    if found is None:  # also for a file that the GPU has rejected
        photo = await decoders.decode(file, metadata.canvas, reading, call.limit.at, call.served.name)
        if asked.tiles is not None:
            found = await _detect_in_tiles(call, photo, tile_spec(asked.tiles), thresholds)
        else:
            found = await submit(DetectJob(thresholds, photo), call.limit.at)
    return found.to_json(metadata.classes)


async def _detect_in_tiles(call: Call, photo: Photo, spec: TileSpec, thresholds: Thresholds) -> Found:
    """Return the detections of a photograph in tiles. Raise ApiError (422) for too many tiles."""
    size, metadata, most = (photo.width, photo.height), call.model.metadata, call.model.largest_batch
    try:
        windows = await call.in_parser(tile_windows, *size, metadata.canvas, spec)
    except InputError as error:
        raise ApiError(422, "invalid_parameter", str(error)) from None
    batches = [windows[n : n + most] for n in range(0, len(windows), most)]
    jobs = [TiledJob(thresholds, part_of(photo, batch), batch) for batch in batches]
    found = [*chain(*await call.compute(jobs))]
    iou = metadata.defaults.iou_threshold if thresholds[1] is None else thresholds[1]
    return await call.in_parser(merge_tiles, found, windows, *size, iou)
