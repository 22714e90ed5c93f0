"""POST /v1/detect."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from lensbox.artifact.metadata import ArtifactMetadata
from lensbox.common.errors import InputError
from lensbox.common.tile_spec import tile_spec
from lensbox.runtime import Detections, Photo
from lensbox.runtime.detection import DetectionArrays, detections_to_json
from lensbox.runtime.device import largest_batch
from lensbox.runtime.images.gpu_jpeg import coded_photo
from lensbox.runtime.tiles import tile_windows
from lensbox.serve.engine.errors import OverloadError
from lensbox.serve.engine.jobs import CodedJob, DetectJob, Job, TiledJob
from lensbox.serve.http.openapi import (
    BINARY,
    DetectAnswer,
    ManyAnswers,
    body,
    inlined,
    parameters,
    problems,
)
from lensbox.serve.http.service import Service, deadline_of_request, service_of
from lensbox.serve.requests.body import Body, content_encoding, receive
from lensbox.serve.requests.errors import ApiError, problem
from lensbox.serve.requests.futures import Deadline, chained, outcome_of, result_for, settled
from lensbox.serve.requests.image_file import hint_of_form
from lensbox.serve.requests.image_list import (
    DetectParameters,
    DetectQuestion,
    Source,
    has_image_list,
    query_parameters,
    read_image_list,
)

router = APIRouter(tags=["detect"])

Item = TypeVar("Item")
Result = TypeVar("Result")

_JSON = "application/json"
_FORM = {
    "type": "object",
    "properties": {"image": {"type": "array", "items": BINARY, "minItems": 1}, "file": BINARY},
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
}
_BODIES = {"multipart/form-data": _FORM, "image/*": BINARY, _JSON: inlined(DetectQuestion)}


@router.post(
    "/v1/detect",
    response_model=DetectAnswer | ManyAnswers,
    responses=problems(400, 408, 413, 415, 422, 503, 504),
    openapi_extra={**body(_BODIES), "parameters": parameters(DetectParameters)},
)
async def detect(request: Request) -> Response:
    """Detections in one image or in several.

    The body is an image file; a multipart form with one or more fields `image`, or one field `file`; or JSON.
    The answer to several images, or to JSON, is a list, with an `error` in place of each image that cannot be
    read.
    """
    service, deadline = service_of(request), deadline_of_request(request)
    settings = service.settings
    service.check_ready()
    query = query_parameters(request, DetectParameters)
    content_encoding(request, ("identity",))
    content, deadline = await receive(request, settings.max_body_bytes, settings, deadline)
    content_type = request.headers.get("content-type", "")
    if not has_image_list(content_type):
        try:
            return await _answer_one(request, content, _Finder(service, query, deadline))
        except ApiError as error:
            if error.code == "undecodable_image" and "--data-binary" not in error.message:
                error.message += hint_of_form(content_type)
            raise
    reading = service.json_parser.submit(
        read_image_list, bytes(content), content_type, query, settings.max_images
    )
    del content  # the images are copies
    images = await result_for(request, reading, deadline)
    finder = _Finder(service, images.parameters, deadline)
    if not images.is_many and isinstance(images.sources[0], bytes):
        return await _answer_one(request, images.sources[0], finder)
    found = await outcome_of(request, finder.find_each(images.sources), deadline)
    classes = service.engine.ready_artifact().metadata.classes

    def write() -> Response:
        return JSONResponse({"images": [_one_of_many(one, classes) for one in found]})

    return await result_for(request, service.json_parser.submit(write), deadline)


class Wait(Protocol):
    """Wait for the result of a future."""

    def __call__(self, future: "Future[Result]", /) -> Awaitable[Result]: ...


class Found(NamedTuple):
    """Detections in a photograph of width x height pixels, upright."""

    width: int
    height: int
    detections: DetectionArrays | Detections


@dataclass(frozen=True)
class _Finder:
    """Runs the detector on images with one set of parameters, until a deadline."""

    service: Service
    parameters: DetectParameters
    deadline: Deadline

    async def find(self, file: Body, wait: Wait, is_alone: bool = False) -> Found:
        """Decode a file and detect. is_alone: as for `Decoders.submit`. Raises NotReadyError.

        The engine decodes JPEG files that its GPU takes, unless the file is alone: a single file is decoded
        faster here. A front end hands over no more files than its share of the engine's places: decoding here
        delays further files, which would be refused. A file that the engine rejects is decoded here, too.
        """
        service, asked, deadline = self.service, self.parameters, self.deadline
        artifact = service.engine.ready_artifact()
        metadata = artifact.metadata
        reading = artifact.reading(asked.orientation, full_size=asked.tiles is not None)
        share = max(1, service.engine.places // (service.settings.frontends or 1))
        has_place = not is_alone and service.engine.waiting < share
        if artifact.decodes_jpeg and asked.tiles is None and has_place:
            coded = coded_photo("", file, metadata.canvas, reading)
            if coded is not None and coded.width * coded.height <= service.settings.max_pixels:
                job = CodedJob(coded, asked.score_threshold, asked.iou_threshold)
                detections = await wait(service.engine.submit(job, deadline.at))
                if detections is not None:
                    return Found(coded.width, coded.height, detections)

        def infer(photo: Photo) -> "Future[DetectionArrays | Detections]":
            return service.engine.submit(_job(photo, asked, metadata), deadline.at)

        decoding = service.decoders.submit(bytes(file), metadata.canvas, reading, deadline.at, is_alone)
        photo, found = await wait(chained(decoding, infer))
        return Found(photo.width, photo.height, found)

    async def find_each(self, sources: Sequence[Source]) -> list[Found | ApiError]:
        """Return the detections in each image, or the error of an image that cannot be read.

        Each image is a separate job, so that engines batch the images of several requests. Raises
        OverloadError, NotReadyError and DeadlineError.
        """

        async def find(source: Source) -> Found:
            if isinstance(source, ApiError):
                raise source
            return await self.find(source, settled)

        return await of_each(sources, find, self._at_once())

    def _at_once(self) -> int:
        """Return how many images of a request may be in flight: two batches, at most half of the queue."""
        settings = self.service.settings
        batch = settings.max_batch or largest_batch(self.service.engine.ready_artifact().device)
        return max(1, min(2 * batch, settings.places // 2))


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


async def of_each(
    items: Sequence[Item], do: Callable[[Item], Awaitable[Result]], at_once: int
) -> list[Result | ApiError]:
    """Return the result of `do`, or its ApiError, for each item. At most `at_once` items are in flight.

    After an OverloadError retry the item later, with fewer items in flight. Raise OverloadError if no other
    item is in flight, and any other exception at once.
    """
    left = deque(enumerate(items))
    results: dict[int, Result | ApiError] = {}
    working = min(at_once, len(items))

    async def work() -> None:
        nonlocal working
        try:
            while left:
                index, item = left.popleft()
                try:
                    results[index] = await do(item)
                except ApiError as error:
                    results[index] = error
                except OverloadError:
                    if working == 1:
                        raise
                    left.append((index, item))
                    return
        finally:
            working -= 1

    workers = [asyncio.ensure_future(work()) for _ in range(working)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
    return [results[index] for index in range(len(items))]


async def _answer_one(request: Request, file: Body, finder: _Finder) -> Response:
    service, deadline = finder.service, finder.deadline

    def wait(future: "Future[Result]") -> "Awaitable[Result]":
        return result_for(request, future, deadline)

    found = await finder.find(file, wait, is_alone=service.is_calm)
    # Without validation by DetectAnswer, which would check each number of each embedding again.
    return JSONResponse(_answer(found, service.engine.ready_artifact().metadata.classes))


def _answer(found: Found, classes: tuple[str, ...]) -> dict[str, Any]:
    detections = detections_to_json(found.detections, classes)
    return {"width": found.width, "height": found.height, "detections": detections}


def _one_of_many(found: Found | ApiError, classes: tuple[str, ...]) -> dict[str, Any]:
    if isinstance(found, ApiError):
        return {"error": problem(found.status, found.code, found.message)}
    return _answer(found, classes)
