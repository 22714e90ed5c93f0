"""Read a request's body under a size limit and a time limit, and the JSON or the form in a body."""

import asyncio
import math
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import anyio
import msgspec
from fastapi import Request
from msgspec import Struct
from msgspec.json import Decoder
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import File, FormParser, parse_options_header
from starlette.requests import ClientDisconnect

from lensbox.serve.errors import ApiError, shown
from lensbox.serve.requests.futures import DEADLINE, Deadline
from lensbox.serve.settings import Settings

Body = bytes | bytearray
Typed = TypeVar("Typed")

JSON, FORM = "application/json", "multipart/form-data"
_IMAGE_FIELDS = (b"image", b"file")

if sys.version_info >= (3, 11):  # a tenth of anyio's time
    _time_limit = asyncio.timeout
else:

    @asynccontextmanager
    async def _time_limit(seconds: float) -> AsyncIterator[None]:
        with anyio.fail_after(seconds):
            yield


async def receive(request: Request, limit: int, settings: Settings) -> tuple[Body, Deadline]:
    """Return the whole body, and the deadline of the answer.

    limit: bytes. The deadline is the client's, or `answer_timeout` after the end of the body if that is
    sooner. Raises ApiError: 400 empty, 408 too slow, 413 too large, 415 compressed, 504 after the deadline.
    """
    deadline: Deadline = request.scope.get(DEADLINE, Deadline())
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        rule = "Content-Encoding must be identity"
        raise ApiError(415, "unsupported_encoding", f"{rule}, got {shown(encoding)}")
    declared = request.headers.get("content-length")
    if declared is not None and int(declared) > limit:  # uvicorn has checked that the value is a number
        raise _too_large(limit, f"a Content-Length of {declared}")
    is_late = deadline.left < settings.body_timeout
    try:
        async with _time_limit(deadline.left if is_late else settings.body_timeout):
            body = await _collect(request, limit)
    except TimeoutError:
        close = {"Connection": "close"}  # the next bytes could be the rest of the body or another request
        if is_late:
            raise ApiError(504, "deadline_exceeded", str(deadline.error()), close) from None
        rule = f"the body must arrive within {settings.body_timeout:g} seconds"
        raise ApiError(408, "body_timeout", f"{rule}, got an incomplete body", close) from None
    if not body:
        raise ApiError(400, "empty_body", "the body must not be empty, got 0 bytes")
    return body, deadline.or_sooner(settings.answer_timeout)


async def _collect(request: Request, limit: int) -> Body:
    """Return the body. Do not copy a body that arrives in a single piece, as most photographs do."""
    body: Body = b""
    is_whole = False
    while not is_whole:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        if len(body) + len(chunk) > limit:  # chunked bodies declare no length
            raise _too_large(limit, f"at least {len(body) + len(chunk)}")
        if not body:
            body = chunk
        elif chunk:
            body = body if isinstance(body, bytearray) else bytearray(body)
            body += chunk
        is_whole = not message.get("more_body", False)
    return body


def _too_large(limit: int, received: str) -> ApiError:
    return ApiError(413, "body_too_large", f"the body must have at most {limit} bytes, got {received}")


def read_json(text: Any, decoder: Decoder[Typed], status: int, code: str, place: str = "the body") -> Typed:
    """Parse a JSON text without conversions between types. Skip unknown keys without building them.

    place: the place of the text, for messages. Raises ApiError: (status, "invalid_json") if the text is not
    JSON, (status, code) if its type is wrong.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise ApiError(status, code, f"{place}: {_fault(error, decoder.type)}") from None
    except (ValueError, RecursionError) as error:  # malformed, not UTF-8, too deep
        raise ApiError(status, "invalid_json", f"the body must be JSON: {error}") from None


def _fault(error: msgspec.ValidationError, kind: Any) -> str:
    """Return msgspec's message, such as "Expected `float`, got `str` - at `$.targets[0][3]`"."""
    is_misspelled = str(error).startswith("Object contains unknown field")
    return f"{error} (known: {', '.join(kind.__struct_fields__)})" if is_misspelled else str(error)


class NoParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """The parameters of an endpoint without query parameters."""


def query_parameters(request: Request, kind: Any) -> Any:
    """Return the query parameters of a request. Raises ApiError (422) for an unknown or repeated name."""
    return _read_query(request.scope["query_string"], kind)


@lru_cache(maxsize=64)  # clients repeat their queries, of at most 64 KiB
def _read_query(query: bytes, kind: Any) -> Any:
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    if len(given := dict(pairs)) < len(pairs):
        raise ApiError(422, "invalid_parameter", f"each parameter must be given once, got {shown(pairs)}")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        message = f"the query {shown(given)}: {_fault(error, kind)}"
        raise ApiError(422, "invalid_parameter", message) from None


def media_type(content_type: str) -> str:
    """Return the media type of a Content-Type in lower case, without parameters."""
    return content_type.partition(";")[0].strip().lower()


def form_image(body: Body, content_type: str) -> bytes:
    """Return the content of a form's only field, which is `image` or `file`. Ignore file names.

    Call it in a worker thread. Starlette's form parser runs on the event loop, writes large parts to disk,
    and does not notice a body that ends early.

    Raises ApiError: 400 for a malformed form, 422 for other fields, several or none.
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise _malformed(f"Content-Type must name a boundary, got {shown(content_type)}")
    images: list[bytes] = []
    ended: list[bool] = []

    def add(part: Any) -> None:
        """Add a `Field`, or a `File`, which stays in memory."""
        if images or part.field_name not in _IMAGE_FIELDS:
            raise _invalid(f"a further field {shown(part.field_name)}")
        if isinstance(part, File):
            part.file_object.seek(0)
        images.append(part.file_object.read() if isinstance(part, File) else part.value or b"")

    in_memory = {"MAX_MEMORY_FILE_SIZE": math.inf}
    try:
        parser = FormParser(FORM, add, add, lambda: ended.append(True), boundary, config=in_memory)
        parser.write(bytes(body))
        parser.finalize()
    except FormParserError as error:
        raise _malformed(f"the body must be a valid multipart form: {error}") from error
    if not ended:
        raise _malformed(f"the form must end with its boundary, got {len(body)} bytes without one")
    if not images:
        raise _invalid("none")
    return images[0]


def _invalid(received: str) -> ApiError:
    return ApiError(422, "invalid_form", f"the form must have one field, 'image' or 'file', got {received}")


def _malformed(message: str) -> ApiError:
    return ApiError(400, "malformed_form", message)
