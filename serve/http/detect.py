"""POST /v1/detect: the parameters and the image of a request, decoding, and its jobs."""

from itertools import chain
from typing import Annotated, Any

from fastapi import Request
from msgspec import Meta, Struct

from lensbox.common.canvas import Canvas
from lensbox.common.detections import TileSpec, check_thresholds, tile_spec
from lensbox.common.errors import InputError
from lensbox.common.fields import Orientation
from lensbox.runtime import Photo
from lensbox.runtime.detect.tiles import Window, merge_tiles, part_of, tile_windows
from lensbox.runtime.images.gpu_jpeg import coded_photo
from lensbox.serve.engine.jobs import CodedJob, DetectJob, DetectorJob, Thresholds, TiledJob
from lensbox.serve.errors import ApiError
from lensbox.serve.http.service import Call
from lensbox.serve.requests.body import FORM, Body, form_image, media_type, query_parameters

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

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds of score and IoU. None stands for the model's default."""
        return self.score_threshold, self.iou_threshold


async def detect(request: Request) -> Any:
    """Detections in one image.

    The body is an image file, or a multipart form with one file, `image` or `file`.
    """
    return await DetectCall(request).answer()


class DetectCall(Call):
    """A request for the detections in one photograph."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.service.decoders.check()
        self._asked: DetectParameters = query_parameters(request, DetectParameters)
        self._file: Body = b""
        self._photo: Photo | None = None
        self._windows: list[Window] = []

    async def read(self, body: Body) -> list[DetectorJob[Any]]:
        """Return the job of a photograph, or the jobs of its tiles.

        The engine decodes JPEG files that its GPU takes.
        """
        is_form = media_type(self.request.headers.get("content-type", "")) == FORM
        self._file = await form_image(self.request, body) if is_form else body
        asked, canvas = self._asked, self.model.metadata.canvas
        if asked.tiles is not None:
            self._photo = await self._decoded(full_size=True)
            self._windows = await self.in_parser(_tiles, self._photo, canvas, tile_spec(asked.tiles))
            most = self.model.largest_batch
            batches = [self._windows[n : n + most] for n in range(0, len(self._windows), most)]
            return [TiledJob(asked.thresholds, part_of(self._photo, batch), batch) for batch in batches]
        if self.model.decodes_jpeg:
            coded = coded_photo(self._file, canvas, self.model.metadata.reading.asked(asked.orientation))
            if coded is not None and coded.width * coded.height <= self.settings.max_pixels:
                return [CodedJob.of(asked.thresholds, coded)]
        return [DetectJob(asked.thresholds, await self._decoded())]

    async def write(self, results: list[Any]) -> Any:
        """Return the detections. A file that the GPU has rejected is decoded here."""
        found: Any = results[0]  # Detections; None for a rejected file
        if self._photo is not None:
            asked, defaults = self._asked.iou_threshold, self.model.metadata.defaults
            iou = defaults.iou_threshold if asked is None else asked
            size = self._photo.width, self._photo.height
            found = await self.in_parser(merge_tiles, [*chain(*results)], self._windows, *size, iou)
        elif found is None:
            (found,) = await self.compute([DetectJob(self._asked.thresholds, await self._decoded())])
        return found.to_json(self.model.metadata.classes)

    async def _decoded(self, full_size: bool = False) -> Photo:
        """Return the photograph."""
        metadata = self.model.metadata
        return await self.service.decoders.decode(
            bytes(self._file),
            metadata.canvas,
            metadata.reading.asked(self._asked.orientation, full_size),
            self.limit.at,
            self.served.name,
        )


def _tiles(photo: Photo, canvas: Canvas, spec: TileSpec) -> list[Window]:
    """Return the windows of a photograph. Raise ApiError (422) for too many tiles."""
    try:
        return tile_windows(photo.width, photo.height, canvas, spec)
    except InputError as error:
        raise ApiError(422, "invalid_parameter", str(error)) from None
