"""Split a multipart/form-data body into its parts.

This works on bytes in memory, in a worker thread. Starlette's form parser runs on the event loop, writes
large parts to disk, and does not notice a body that ends early.
"""

import math
from typing import Any, NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import File, FormParser, parse_options_header

from lensbox.serve.requests.errors import ApiError, shown

FORM = "multipart/form-data"


class Part(NamedTuple):
    """A field of a form. File names are ignored."""

    name: str
    content: bytes


def media_type(content_type: str | None) -> str:
    """Return the media type of a Content-Type in lower case, without parameters; "" for None."""
    if content_type is None or ";" not in content_type:
        return (content_type or "").strip().lower()
    # Some releases of python-multipart do not convert to lower case.
    return parse_options_header(content_type)[0].decode("latin-1").lower()


def form_parts(body: bytes, content_type: str, most: int) -> list[Part]:
    """Return the parts of a form in order.

    Raises ApiError: 400 for a malformed form, 413 for more than `most` parts.
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise _malformed(f"Content-Type must name a boundary, got {shown(content_type)}")
    parts: list[Part] = []
    ended: list[bool] = []

    def add(part: Any) -> None:
        """Add a `Field`, or a `File`, which stays in memory."""
        if part.field_name is None:  # later releases of python-multipart refuse such a part themselves
            raise FormParserError("a part has no name")
        if len(parts) == most:
            raise ApiError(413, "too_many_images", f"the form must have at most {most} parts, got more")
        if isinstance(part, File):
            part.file_object.seek(0)
        content = part.file_object.read() if isinstance(part, File) else part.value or b""
        parts.append(Part(part.field_name.decode("utf-8", "replace"), content))

    in_memory = {"MAX_MEMORY_FILE_SIZE": math.inf}
    try:
        parser = FormParser(FORM, add, add, lambda: ended.append(True), boundary, config=in_memory)
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise _malformed(f"the body must be a valid multipart form: {error}") from error
    if not ended:
        raise _malformed(f"the form must end with its boundary, got {len(body)} bytes without one")
    return parts


def _malformed(message: str) -> ApiError:
    return ApiError(400, "malformed_form", message)
