"""Read the image and the parameters of a request for detections."""

import base64
import binascii
import re
from functools import lru_cache
from typing import Annotated, Any
from urllib.parse import parse_qsl

import msgspec
from fastapi import Request
from msgspec import Meta, Struct
from msgspec.json import Decoder

from lensbox.common.detect_options import check_thresholds, tile_spec
from lensbox.common.fields import Orientation
from lensbox.serve.errors import ApiError, shown
from lensbox.serve.requests.body import FORM, Body, fault_message, form_image, media_type, read_json

_FRACTION = {"minimum": 0, "maximum": 1}
_DATA_URI = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_STANDARD_ALPHABET = bytes.maketrans(b"-_", b"+/")


class DetectParameters(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Query parameters of /v1/detect. A misspelled name is an error, not a default."""

    score_threshold: Annotated[
        float | None,
        Meta(
            description="Return detections with a score above this. Default: the artifact's.",
            extra_json_schema=_FRACTION,
        ),
    ] = None
    iou_threshold: Annotated[
        float | None,
        Meta(
            description="If two detections overlap by more than this, keep only the higher score.",
            extra_json_schema=_FRACTION,
        ),
    ] = None
    orientation: Annotated[
        Orientation | None,
        Meta(
            description="exif: rotate the photograph by its EXIF data. stored: do not rotate. "
            "Default: the artifact's."
        ),
    ] = None
    tiles: Annotated[
        str | None,
        Meta(
            description="Detect small objects in overlapping tiles of a large photograph: auto (tiles of "
            "the canvas's size), SIZE or SIZE,OVERLAP (pixels of the longer side; 0 to below 1). Default: no "
            "tiles."
        ),
    ] = None

    def __post_init__(self) -> None:
        check_thresholds(score_threshold=self.score_threshold, iou_threshold=self.iou_threshold)
        if self.tiles is not None:
            tile_spec(self.tiles)


class DetectQuestion(DetectParameters, frozen=True, kw_only=True):
    """A JSON body of /v1/detect."""

    image: Annotated[str, Meta(description="an image file in base64, or a data: URI of one")]


class NoParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """The parameters of an endpoint without query parameters."""


_QUESTION = Decoder(DetectQuestion)


def read_detect_request(
    body: Body, content_type: str, parameters: DetectParameters
) -> tuple[Body, DetectParameters]:
    """Return the image file in a form or in JSON, and all parameters.

    A form has one field `image` or `file`. JSON is {"image": base64}, with parameters that are not in the
    query. Raises ApiError: 400 for a malformed form or base64; 422 for other fields, other JSON, and a
    parameter in both query and body.
    """
    if media_type(content_type) == FORM:
        return form_image(body, content_type), parameters
    question = read_json(body, _QUESTION, 422, "invalid_body")
    both: dict[str, Any] = {}
    for name in DetectParameters.__struct_fields__:
        of_query, of_body = getattr(parameters, name), getattr(question, name)
        if of_query is not None and of_body is not None:
            raise _invalid_parameter(f"{name} must be in the query or in the body, got both")
        both[name] = of_body if of_query is None else of_query
    return _from_base64(question.image), DetectParameters(**both)


def query_parameters(request: Request, kind: Any) -> Any:
    """Return the query parameters of a request. Raises ApiError (422) for an unknown or repeated name."""
    return _read_query(request.scope["query_string"], kind)


@lru_cache(maxsize=64)  # clients repeat their queries, of at most 64 KiB
def _read_query(query: bytes, kind: Any) -> Any:
    given: dict[str, str] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name in given:
            raise _invalid_parameter(f"the query parameter {shown(name)} must be given once, got it twice")
        given[name] = value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid_parameter(fault_message(error, kind, "the query", given=given)) from None


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
