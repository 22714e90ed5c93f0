"""Read the images of a request body that holds one image or many."""

import base64
import binascii
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, TypeVar

from fastapi import Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import QueryParams

from lensbox.common.fields import Orientation
from lensbox.common.tile_spec import tile_spec
from lensbox.serve.requests.errors import ApiError, shown
from lensbox.serve.requests.form import FORM, form_parts, media_type
from lensbox.serve.requests.json_body import check_counts, fault_message, read_json

Threshold = Annotated[float, Field(ge=0, le=1)]
Parameters = TypeVar("Parameters", bound=BaseModel)

IMAGE_FIELDS = ("image", "file")
_SPARE = 256  # extra arrays, objects, quotes and commas outside of the images

# The file of an image, or an ApiError if its data cannot be read.
Source = bytes | ApiError


def _readable_tiles(tiles: str | None) -> str | None:
    if tiles is not None:
        tile_spec(tiles)
    return tiles


class DetectParameters(BaseModel):
    """Query parameters of /v1/detect. A misspelled name is an error, not a default."""

    model_config = ConfigDict(extra="forbid")

    score_threshold: Threshold | None = Field(
        None, description="Return detections with a score above this. Default: the artifact's."
    )
    iou_threshold: Threshold | None = Field(
        None, description="If two detections overlap by more than this, keep only the higher score."
    )
    orientation: Orientation | None = Field(
        None,
        description="exif: rotate the photograph by its EXIF data. stored: do not rotate. "
        "Default: the artifact's.",
    )
    tiles: Annotated[str | None, AfterValidator(_readable_tiles)] = Field(
        None,
        description="Detect small objects in overlapping tiles of a large photograph: auto (tiles of the "
        "canvas's size), SIZE or SIZE,OVERLAP (pixels of the longer side; 0 to below 1). Default: no tiles.",
    )


class ImageData(BaseModel):
    """An image in a JSON body."""

    model_config = ConfigDict(extra="forbid")

    data: str = Field(description="an image file in base64")


class DetectQuestion(DetectParameters):
    """A JSON body of /v1/detect."""

    images: list[ImageData] = Field(min_length=1, fail_fast=True)


class NoParameters(BaseModel):
    """The parameters of an endpoint without query parameters."""

    model_config = ConfigDict(extra="forbid")


class ImageList(NamedTuple):
    """The images of a request. is_many: True if the answer is a list, even for one image."""

    sources: list[Source]
    parameters: DetectParameters
    is_many: bool


def has_image_list(content_type: str | None) -> bool:
    """Return True if a body is a form or JSON. Any other body is one image file."""
    return media_type(content_type) in ("multipart/form-data", "application/json")


def read_image_list(
    body: bytes, content_type: str, parameters: DetectParameters, max_images: int
) -> ImageList:
    """Return the images of a form or of JSON.

    A form has one or more fields `image`, or one field `file`. JSON is {"images": [{"data": base64}, ...]},
    with parameters that are not in the query. Raises ApiError: 400 for a malformed form, 413 for more than
    `max_images`, 422 for other fields, other JSON, and a parameter in both query and body.
    """
    if media_type(content_type) == FORM:
        return ImageList(sources := _from_form(body, content_type, max_images), parameters, len(sources) > 1)
    question = _from_json(body, max_images)
    sources = [_source(f"images[{index}]", image.data) for index, image in enumerate(question.images)]
    for name in sorted(parameters.model_fields_set & question.model_fields_set):
        raise _invalid_parameter(f"{name} must be in the query or in the body, got both")
    of_body = question.model_dump(include=question.model_fields_set - {"images"})
    return ImageList(sources, parameters.model_copy(update=of_body), True)


def query_parameters(request: Request, model: type[Parameters]) -> Parameters:
    """Return the query parameters of a request. Raises ApiError (422) for an unknown or repeated name."""
    parameters: Parameters = _read_query(request.scope["query_string"], model)
    return parameters


@lru_cache(maxsize=64)  # clients repeat their queries, of at most 64 KiB
def _read_query(query: bytes, model: type[Any]) -> Any:
    given: dict[str, str] = {}
    for name, value in QueryParams(query).multi_items():
        if name in given:
            raise _invalid_parameter(f"the query parameter {shown(name)} must be given once, got it twice")
        given[name] = value
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise _invalid_parameter(fault_message(error, model, "query parameter")) from None


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


def _from_json(body: bytes, max_images: int) -> DetectQuestion:
    """Return a JSON body. Raises ApiError: 413 for more than `max_images` images, 422."""
    most = _SPARE + 16 * max_images
    quotes = _SPARE + 8 * 16 * max_images
    limits = {"arrays": most, "objects": most, "quotes": quotes, "commas": most}
    check_counts(body, limits, 413, "too_many_images", "the JSON of a request")
    question = read_json(body, DetectQuestion, 422, "invalid_images")
    if (count := len(question.images)) > max_images:
        raise ApiError(413, "too_many_images", f"images must be at most {max_images}, got {count}")
    return question


def _source(name: str, text: str) -> Source:
    """Return the file of an image, or an ApiError if the data is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:  # ValueError: letters beyond ASCII
        return ApiError(400, "undecodable_image", f"data of {name} must be base64: {error}")


def _invalid_form(message: str) -> ApiError:
    return ApiError(422, "invalid_form", message)


def _invalid_parameter(message: str) -> ApiError:
    return ApiError(422, "invalid_parameter", message)
