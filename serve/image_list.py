"""From a request body of one image or many to their files."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from lensbox.serve.errors import ApiError, parameter_message, shown
from lensbox.serve.form import form_parts, is_form, media_type
from lensbox.serve.json_body import parse_json
from lensbox.serve.schemas import DetectParameters

Parameters = TypeVar("Parameters", bound=DetectParameters)

IMAGE_FIELDS = ("image", "file")
_KEY_OF_BODY = "key of the body"
_SPARE = 256  # of each sign, for the rest of the body and what stands in strings


class Url(NamedTuple):
    """Where an image is to be fetched from."""

    text: str


# An ApiError is the answer in the place of an image whose data cannot be read.
Source = bytes | Url | ApiError


class ImageList(NamedTuple):
    """The images of a request; `is_many`: whether they are answered as a list, be it of one."""

    sources: list[Source]
    parameters: DetectParameters
    is_many: bool


def has_image_list(content_type: str | None) -> bool:
    """Whether a body is a form or JSON; any other is the file of one image."""
    return media_type(content_type) in ("multipart/form-data", "application/json")


def read_image_list(
    body: bytes, content_type: str, parameters: DetectParameters, max_images: int
) -> ImageList:
    """The images of a form or of JSON.

    A form has the field `image`, once or more, or `file` once. JSON is {"images": [{"data": base64} or
    {"url": …}, …]} and maybe what `parameters`, those of the query, leave out. Raises ApiError: 400 for a
    malformed form, 413 for more than `max_images`, 422 for other fields, other JSON, and a parameter that
    was given twice.
    """
    if not is_form(content_type):
        question = read_question(body, max_images)
        images = question.pop("images")
        sources = [as_source(f"images[{index}]", image) for index, image in enumerate(images)]
        return ImageList(sources, merged(parameters, question), True)
    parts = form_parts(body, content_type, max_images)
    for name, _ in parts:
        if name not in IMAGE_FIELDS:
            raise ApiError(
                422,
                "invalid_form",
                f"the form's field must be named 'image' or 'file', got {shown(name)}; "
                "thresholds are query parameters",
            )
    names = [name for name, _ in parts]
    if not names or ("file" in names and len(names) > 1):
        raise ApiError(
            422,
            "invalid_form",
            f"the form must have one field 'image' or 'file', or several 'image', got {shown(names)}",
        )
    return ImageList([content for _, content in parts], parameters, len(parts) > 1)


def read_question(body: bytes, max_images: int, most_arrays: int = 0, most_commas: int = 0) -> dict[str, Any]:
    """A JSON object with `images`, a list of 1 to `max_images` of them; the rest is not looked at.

    most_arrays, most_commas: as for `read_json`, beside those that images need. Raises ApiError: 413, 422.
    """
    of_images = 16 * max_images
    question = read_json(body, of_images + most_arrays, of_images + most_commas)
    if not isinstance(question, dict) or "images" not in question:
        raise _invalid(f"the body must be an object with images, got {shown(question)}")
    images = question["images"]
    if not isinstance(images, list) or not images:
        raise _invalid(f"images must be an array of at least one image, got {shown(images)}")
    if len(images) > max_images:
        message = f"images must be at most {max_images}, got {len(images)}"
        raise ApiError(413, "too_many_images", message)
    return question


def read_json(body: bytes, most_arrays: int, most_commas: int) -> Any:
    """The value of a JSON text with no more arrays, objects, commas and strings than there may be.

    What has more is not parsed: the parser stops every other thread of the process while it works. Raises
    ApiError: 413, 422.
    """
    for what, sign, most in (
        ("arrays", b"]", most_arrays),
        ("objects", b"{", most_arrays),
        ("quotes", b'"', 8 * most_arrays),
        ("commas", b",", most_commas),
    ):
        if (count := body.count(sign)) > _SPARE + most:
            message = f"the JSON of a request must have at most {_SPARE + most} {what}, got {count}"
            raise ApiError(413, "too_many_images", message)
    try:
        return parse_json(body)
    except ValueError as error:
        raise ApiError(422, "invalid_json", f"the body must be JSON: {error}") from None


def as_source(name: str, image: Any) -> Source:
    """What an element of `images` names. Raises ApiError (422) for another form than an image has."""
    if not isinstance(image, dict) or len(image) != 1 or next(iter(image)) not in ("data", "url"):
        raise _invalid(f'{name} must be {{"data": base64}} or {{"url": …}}, got {shown(image)}')
    ((kind, value),) = image.items()
    if not isinstance(value, str):
        raise _invalid(f"{kind} of {name} must be a string, got {shown(value)}")
    return Url(value) if kind == "url" else decoded(f"data of {name}", value)


def decoded(name: str, text: str) -> bytes | ApiError:
    """The bytes of a base64 text, or what is wrong with it."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:  # ValueError: letters beyond ASCII
        return ApiError(400, "undecodable_image", f"{name} must be base64 (RFC 4648, 4): {error}")


def merged(parameters: Parameters, given: Mapping[str, Any]) -> Parameters:
    """Parameters of the query and of a body together. Raises ApiError (422)."""
    of_query = parameters.model_dump(exclude_none=True)
    for name, value in given.items():
        if name not in type(parameters).model_fields:  # of any letters, which pydantic would not name
            fault = {"type": "extra_forbidden", "loc": (name,), "input": value}
            raise ApiError(422, "invalid_parameter", parameter_message(fault, _KEY_OF_BODY))
        if name in of_query:
            message = f"{name} must be given in the query or in the body, got both"
            raise ApiError(422, "invalid_parameter", message)
    try:
        return type(parameters).model_validate({**of_query, **given}, strict=True)
    except ValidationError as error:
        message = parameter_message(error.errors()[0], _KEY_OF_BODY)
        raise ApiError(422, "invalid_parameter", message) from None


def _invalid(message: str) -> ApiError:
    return ApiError(422, "invalid_images", message)
