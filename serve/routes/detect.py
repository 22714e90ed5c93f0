"""POST /v1/detect."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response

from lensbox.runtime.detection import detections_to_json
from lensbox.serve.answering import outcome_of, result_for
from lensbox.serve.deadline import clients_deadline
from lensbox.serve.detecting import Finder, Found
from lensbox.serve.errors import ApiError, problem
from lensbox.serve.image_list import has_image_list, read_image_list
from lensbox.serve.negotiation import negotiated
from lensbox.serve.picture import PICTURE_TYPES, picture
from lensbox.serve.query import check_each_once
from lensbox.serve.request_body import receive
from lensbox.serve.schemas import (
    BINARY,
    DetectAnswer,
    DetectParameters,
    DetectQuestion,
    ManyAnswers,
    inlined,
    problems,
)
from lensbox.serve.service import service_of

router = APIRouter(tags=["detect"], dependencies=[Depends(check_each_once)])

_JSON = "application/json"
_VARY = {"Vary": "Accept"}

_FORM = {
    "type": "object",
    "properties": {"image": {"type": "array", "items": BINARY, "minItems": 1}, "file": BINARY},
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": _FORM},
            "image/*": {"schema": BINARY},
            _JSON: {"schema": inlined(DetectQuestion)},
        },
    }
}
_PICTURES: dict[int | str, dict[str, Any]] = {
    200: {"content": {name: {"schema": BINARY} for name in PICTURE_TYPES}}
}


@router.post(
    "/v1/detect",
    response_model=DetectAnswer | ManyAnswers,
    responses={**_PICTURES, **problems(400, 406, 408, 413, 415, 422, 503, 504)},
    openapi_extra=_BODY,
)
async def detect(request: Request, parameters: Annotated[DetectParameters, Query()]) -> Response:
    """What the detector finds in one image or in several; GET /v1/model tells its name and classes.

    The body is the file of an image, under any other Content-Type than the following or none; a multipart
    form with the field `image`, once or several times, or `file`; or JSON. Several images, and those of JSON,
    are answered as a list, in which an image that cannot be read has an `error` in its place.

    With `Accept: image/jpeg` or `image/png` the answer to one image is a picture of what was found in it.
    """
    service = service_of(request)
    settings, instance = service.settings, service.instance
    service.check_ready()
    accept = request.headers.getlist("accept")
    wanted = negotiated(accept, (_JSON, *PICTURE_TYPES))
    with service.admitted(clients_deadline(request)):
        body, deadline = await receive(request, settings.max_body_bytes, settings)
        instance.check_room(deadline.at)
        content_type = request.headers.get("content-type")
        if content_type is None or not has_image_list(content_type):
            return await _answer_one(request, body, Finder(service, parameters, deadline), wanted)
        size = len(body)
        reading = service.json_parser.submit(
            read_image_list, body, content_type, parameters, settings.max_images
        )
        del body  # of which there are copies now
        images = await result_for(request, reading, deadline)
        finder = Finder(service, images.parameters, deadline)
        if not images.is_many and isinstance(images.sources[0], bytes):
            return await _answer_one(request, images.sources[0], finder, wanted)
        negotiated(accept, (_JSON,))  # a picture is of one image
        found = await outcome_of(request, finder.find_each(images.sources, size), deadline)
        classes = instance.ready_artifact().metadata.classes

        def write() -> Response:
            return JSONResponse({"images": [_one_of_many(one, classes) for one in found]}, headers=_VARY)

        return await result_for(request, service.json_parser.submit(write), deadline)


async def _answer_one(request: Request, file: bytes, finder: Finder, wanted: str) -> Response:
    service, deadline = finder.service, finder.deadline
    finding = finder.find(file, is_alone=service.in_progress == 1)
    photo, detections = await result_for(request, finding, deadline)
    metadata = service.instance.ready_artifact().metadata
    answer = _answer(Found(photo.width, photo.height, detections), metadata.classes)
    if wanted == _JSON:
        # Not by way of the model: it would look at each number of each embedding once more.
        return JSONResponse(answer, headers=_VARY)
    del photo
    reading = service.instance.ready_artifact().reading(finder.parameters.orientation)
    drawing = service.decoders.run(
        lambda until: picture(
            file, reading, answer["detections"], metadata, wanted, service.settings.max_pixels, until
        ),
        deadline.at,
    )
    drawn = await result_for(request, drawing, deadline)
    return Response(drawn, headers=_VARY, media_type=wanted)


def _answer(found: Found, classes: tuple[str, ...]) -> dict[str, Any]:
    detections = detections_to_json(found.detections, classes)
    return {"width": found.width, "height": found.height, "detections": detections}


def _one_of_many(found: Found | ApiError, classes: tuple[str, ...]) -> dict[str, Any]:
    if isinstance(found, ApiError):
        return {"error": problem(found.status, found.code, found.message)}
    return _answer(found, classes)
