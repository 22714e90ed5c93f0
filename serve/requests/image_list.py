"""Read the images of a request body that holds one image or many."""

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lensbox.artifact.metadata import Orientation
from lensbox.serve.requests.errors import ApiError, parameter_message, shown
from lensbox.serve.requests.form import form_parts, is_form, media_type
from lensbox.serve.requests.json_body import check_counts, parse_json

Threshold = Annotated[float, Field(ge=0, le=1)]
Parameters = TypeVar("Parameters", bound=BaseModel)

IMAGE_FIELDS = ("image", "file")
_SPARE = 256  # arrays, objects, quotes and commas beside those of the images

# An ApiError takes the place of an image whose data cannot be read.
Source = bytes | ApiError


class DetectParameters(BaseModel):
    """Query parameters of /v1/detect. A misspelled name is an error, not a default."""

    model_config = ConfigDict(extra="forbid")

    score_threshold: Threshold | None = Field(
        None, description="Detections have a score above this. Default: the artifact's."
    )
    iou_threshold: Threshold | None = Field(
        None, description="If two detections overlap by more than this, the one with the higher score stays."
    )
    orientation: Orientation | None = Field(
        None,
        description="exif: turn the photograph upright by its EXIF data. stored: leave it as it lies. "
        "Default: the artifact's.",
    )


class NoParameters(BaseModel):
    """The parameters of an endpoint without query parameters."""

    model_config = ConfigDict(extra="forbid")


class ImageList(NamedTuple):
    """The images of a request. is_many: whether the answer is a list, even of one image."""

    sources: list[Source]
    parameters: DetectParameters
    is_many: bool


def has_image_list(content_type: str | None) -> bool:
    """Return whether a body is a form or JSON; any other body is the file of one image."""
    return media_type(content_type) in ("multipart/form-data", "application/json")


def read_image_list(
    body: bytes, content_type: str, parameters: DetectParameters, max_images: int
) -> ImageList:
    """Return the images of a form or of JSON.

    A form has the field `image`, once or more, or `file` once. JSON is {"images": [{"data": base64}, ...]},
    and may have parameters that the query leaves out. Raises ApiError: 400 for a malformed form, 413 for more
    than `max_images`, 422 for other fields, other JSON, and a parameter that was given twice.
    """
    if is_form(content_type):
        return ImageList(sources := _from_form(body, content_type, max_images), parameters, len(sources) > 1)
    question = _from_json(body, max_images)
    sources = [_source(f"images[{index}]", image) for index, image in enumerate(question.pop("images"))]
    return ImageList(sources, merged(parameters, question), True)


def query_parameters(request: Request, model: type[Parameters]) -> Parameters:
    """Return the query parameters of a request. Raises ApiError (422) for unknown and repeated ones."""
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise _invalid_parameter(f"the query parameter {shown(name)} must come once, got it again")
        given[name] = value
    return _validated(model, given, "query parameter")


def merged(parameters: Parameters, given: Mapping[str, Any]) -> Parameters:
    """Return the parameters of a query and of a body together. Raises ApiError (422)."""
    of_query = parameters.model_dump(exclude_none=True)
    for name in given:
        if name in of_query:
            raise _invalid_parameter(f"{name} must be given in the query or in the body, got both")
    return _validated(type(parameters), {**of_query, **given}, "key of the body", strict=True)


def _validated(
    model: type[Parameters], given: Mapping[str, Any], kind: str, strict: bool | None = None
) -> Parameters:
    for name, value in given.items():  # pydantic would not name a key with half a surrogate pair
        if name not in model.model_fields:
            fault = {"type": "extra_forbidden", "loc": (name,), "input": value}
            raise _invalid_parameter(parameter_message(fault, tuple(model.model_fields), kind))
    try:
        return model.model_validate(given, strict=strict)
    except ValidationError as error:
        message = parameter_message(error.errors()[0], tuple(model.model_fields), kind)
        raise _invalid_parameter(message) from None


def _from_form(body: bytes, content_type: str, max_images: int) -> list[Source]:
    parts = form_parts(body, content_type, max_images)
    names = [name for name, _ in parts]
    for name in names:
        if name not in IMAGE_FIELDS:
            rule = "the form's field must be named 'image' or 'file'"
            raise _invalid_form(f"{rule}, got {shown(name)}; thresholds are query parameters")
    if not names or ("file" in names and len(names) > 1):
        rule = "the form must have one field 'image' or 'file', or several 'image'"
        raise _invalid_form(f"{rule}, got {shown(names)}")
    return [content for _, content in parts]


def _from_json(body: bytes, max_images: int) -> dict[str, Any]:
    """Return a JSON object with `images`, a list of 1 to `max_images`. Raises ApiError: 413, 422."""
    most = _SPARE + 16 * max_images
    quotes = _SPARE + 8 * 16 * max_images
    limits = {"arrays": most, "objects": most, "quotes": quotes, "commas": most}
    check_counts(body, limits, 413, "too_many_images", "the JSON of a request")
    try:
        question = parse_json(body)
    except ValueError as error:
        raise ApiError(422, "invalid_json", f"the body must be JSON: {error}") from None
    if not isinstance(question, dict) or "images" not in question:
        raise _invalid_images(f"the body must be an object with images, got {shown(question)}")
    images = question["images"]
    if not isinstance(images, list) or not images:
        raise _invalid_images(f"images must be an array of at least one image, got {shown(images)}")
    if len(images) > max_images:
        raise ApiError(413, "too_many_images", f"images must be at most {max_images}, got {len(images)}")
    return question


def _source(name: str, image: Any) -> Source:
    """Return the file of an element of `images`, or why it is not base64. Raises ApiError (422)."""
    match image:
        case {"data": str(text)} if len(image) == 1:
            try:
                return base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError) as error:  # ValueError: letters beyond ASCII
                return ApiError(400, "undecodable_image", f"data of {name} must be base64: {error}")
    raise _invalid_images(f'{name} must be {{"data": base64}}, got {shown(image)}')


def _invalid_images(message: str) -> ApiError:
    return ApiError(422, "invalid_images", message)


def _invalid_form(message: str) -> ApiError:
    return ApiError(422, "invalid_form", message)


def _invalid_parameter(message: str) -> ApiError:
    return ApiError(422, "invalid_parameter", message)
