"""Read the image in a multipart/form-data body.

This works on bytes in memory, in a worker thread. Starlette's form parser runs on the event loop, writes
large parts to disk, and does not notice a body that ends early.
"""

import math
import re
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import File, FormParser, parse_options_header

from lensbox.serve.errors import ApiError, shown
from lensbox.serve.requests.body import Body

FORM = "multipart/form-data"
_IMAGE_FIELDS = (b"image", b"file")


def media_type(content_type: str) -> str:
    """Return the media type of a Content-Type in lower case, without parameters."""
    return content_type.partition(";")[0].strip().lower()


def form_image(body: Body, content_type: str) -> bytes:
    """Return the content of a form's only field, which is `image` or `file`. Ignore file names.

    Raises ApiError: 400 for a malformed form, 422 for other fields, several or none.
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise _malformed(f"Content-Type must name a boundary, got {shown(content_type)}")
    content = _normalized(bytes(body), b"--" + boundary)
    images: list[bytes] = []
    ended: list[bool] = []

    def add(part: Any) -> None:
        """Add a `Field`, or a `File`, which stays in memory."""
        if part.field_name not in _IMAGE_FIELDS:
            raise _invalid(f"a field {shown(part.field_name)}; thresholds are query parameters")
        if images:
            raise _invalid("several; send each image in a request of its own")
        if isinstance(part, File):
            part.file_object.seek(0)
        images.append(part.file_object.read() if isinstance(part, File) else part.value or b"")

    in_memory = {"MAX_MEMORY_FILE_SIZE": math.inf}
    try:
        parser = FormParser(FORM, add, add, lambda: ended.append(True), boundary, config=in_memory)
        parser.write(content)
        parser.finalize()
    except FormParserError as error:
        raise _malformed(f"the body must be a valid multipart form: {error}") from error
    if not ended:
        raise _malformed(f"the form must end with its boundary, got {len(body)} bytes without one")
    if not images:
        raise _invalid("none")
    return images[0]


def _normalized(body: bytes, line: bytes) -> bytes:
    """Remove what RFC 2046 allows and the parser does not take: a preamble, and spaces behind a boundary."""
    if not body.startswith(line):  # the preamble ends where a line begins with the boundary
        body = body[body.find(b"\n" + line) + 1 :]
    if line + b" " in body or line + b"\t" in body:
        spaces = rb"(^|\n)" + re.escape(line) + rb"[ \t]+\r\n"
        body = re.sub(spaces, lambda found: found[1] + line + b"\r\n", body)
    return body


def _invalid(received: str) -> ApiError:
    return ApiError(422, "invalid_form", f"the form must have one field, 'image' or 'file', got {received}")


def _malformed(message: str) -> ApiError:
    return ApiError(400, "malformed_form", message)
