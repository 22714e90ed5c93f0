"""Read the image and the parameters of a request for detections."""

import base64
import binascii
import re
from functools import lru_cache
from typing import Annotated, Any, TypeVar

from fastapi import Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import QueryParams

from lensbox.common.detect_options import tile_spec
from lensbox.common.fields import Orientation
from lensbox.serve.errors import ApiError, shown
from lensbox.serve.requests.body import Body
from lensbox.serve.requests.form import FORM, form_image, media_type
from lensbox.serve.requests.json_body import check_counts, fault_message, read_json

Threshold = Annotated[float, Field(ge=0, le=1)]
Parameters = TypeVar("Parameters", bound=BaseModel)

JSON = "application/json"
# Limits far above the needs of an image and its parameters.
_MOST_SIGNS = dict.fromkeys(("arrays", "objects", "quotes", "commas"), 64)
_DATA_URI = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_STANDARD_ALPHABET = bytes.maketrans(b"-_", b"+/")


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


class DetectQuestion(DetectParameters):
    """A JSON body of /v1/detect."""

    image: str = Field(description="an image file in base64, or a data: URI of one")


class NoParameters(BaseModel):
    """The parameters of an endpoint without query parameters."""

    model_config = ConfigDict(extra="forbid")


def wraps_image(content_type: str) -> bool:
    """Return True if a body is a form or JSON. Any other body is an image file."""
    return media_type(content_type) in (FORM, JSON)


def read_detect_request(
    body: bytes, content_type: str, parameters: DetectParameters
) -> tuple[Body, DetectParameters]:
    """Return the image file in a form or in JSON, and all parameters.

    A form has one field `image` or `file`. JSON is {"image": base64}, with parameters that are not in the
    query. Raises ApiError: 400 for a malformed form or base64; 422 for other fields, other JSON, and a
    parameter in both query and body.
    """
    if media_type(content_type) == FORM:
        return form_image(body, content_type), parameters
    check_counts(body, _MOST_SIGNS, 422, "invalid_body", "the JSON of an image")
    question = read_json(body, DetectQuestion, 422, "invalid_body")
    for name in sorted(parameters.model_fields_set & question.model_fields_set):
        raise _invalid_parameter(f"{name} must be in the query or in the body, got both")
    of_body = question.model_dump(include=question.model_fields_set - {"image"})
    return _from_base64(question.image), parameters.model_copy(update=of_body)


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


def _from_base64(text: str) -> bytes:
    """Decode base64 of either alphabet, with or without a data: URI, line breaks and padding."""
    prefix = _DATA_URI.match(text)
    try:
        letters = text[prefix.end() if prefix else 0 :].encode("ascii").translate(_STANDARD_ALPHABET, b"\r\n")
        return base64.b64decode(letters + b"=" * (-len(letters) % 4), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        rule = "image must be a file in base64, or a data: URI of base64"
        raise ApiError(400, "undecodable_image", f"{rule}, got {shown(text)}: {error}") from None


def _invalid_parameter(message: str) -> ApiError:
    return ApiError(422, "invalid_parameter", message)
