"""Read a request's body under a size limit and a time limit, and the JSON or the form in a body."""

import base64
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from fastapi import Request
from msgspec import Struct
from msgspec.json import Decoder
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message

from lensbox.serve.errors import ApiError, shortened
from lensbox.serve.requests.limits import LIMIT, TimeLimit
from lensbox.serve.settings import Settings

Body = bytes | bytearray
Typed = TypeVar("Typed")

JSON, FORM = "application/json", "multipart/form-data"
_IMAGE_FIELDS = ("image", "file")


async def receive(request: Request, limit: int, settings: Settings) -> Body:
    """Return the whole body. Afterwards the request has `answer_timeout` for its answer.

    limit: bytes. Raise ApiError: 400 empty, 408 too slow, 413 too large, 415 compressed.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        rule = "Content-Encoding must be identity"
        raise ApiError(415, "unsupported_encoding", f"{rule}, got {shortened(encoding)}")
    declared = request.headers.get("content-length")
    if declared is not None and int(declared) > limit:  # the parser has checked that the value is a number
        raise _too_large(limit, f"a Content-Length of {declared}")
    time: TimeLimit = request.scope[LIMIT]
    rule = f"the body must arrive within {settings.body_timeout:g} seconds"
    time.set(settings.body_timeout, ApiError(408, "body_timeout", f"{rule}, got an incomplete body"))
    body = await _collect(request, limit)
    time.set(settings.answer_timeout)
    if not body:
        raise ApiError(400, "empty_body", "the body must not be empty, got 0 bytes")
    return body


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

    place: the place of the text, for messages. Raise ApiError: (status, "invalid_json") if the text is not
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
    """Return the query parameters of a request. Raise ApiError (422) for an unknown or repeated name."""
    return _read_query(request.scope["query_string"], kind)


@lru_cache(maxsize=64)  # clients repeat their queries, of at most 64 KiB
def _read_query(query: bytes, kind: Any) -> Any:
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    if len(given := dict(pairs)) < len(pairs):
        raise ApiError(422, "invalid_parameter", f"each parameter must be given once, got {shortened(pairs)}")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        message = f"the query {shortened(given)}: {_fault(error, kind)}"
        raise ApiError(422, "invalid_parameter", message) from None


def media_type(content_type: str) -> str:
    """Return the media type of a Content-Type in lower case, without parameters."""
    return content_type.partition(";")[0].strip().lower()


async def form_image(request: Request, body: Body) -> bytes:
    """Return the content of a form's only field, which is `image` or `file`. Ignore file names.

    Raise ApiError: 400 for a malformed form, 422 for other fields, several or none.
    """

    async def replay() -> Message:
        return {"type": "http.request", "body": bytes(body), "more_body": False}

    try:
        limits = {"max_files": 1, "max_fields": 1, "max_part_size": len(body)}
        async with Request(request.scope, replay).form(**limits) as form:
            fields = form.multi_items()
            if len(fields) != 1 or fields[0][0] not in _IMAGE_FIELDS:
                raise _invalid(shortened([name for name, _ in fields]) if fields else "none")
            field = fields[0][1]
            if isinstance(field, str):  # without a file name, and read as text
                return field.encode("utf-8" if max(field, default="") > "\xff" else "latin-1")
            content = await field.read()
            if field.headers.get("content-transfer-encoding", "").lower() == "base64":
                return base64.b64decode(content)
            return content
    except (HTTPException, ValueError, KeyError) as error:
        detail = error.detail if isinstance(error, HTTPException) else error
        raise ApiError(400, "malformed_form", f"the body must be a valid multipart form: {detail}") from None


def _invalid(received: str) -> ApiError:
    return ApiError(422, "invalid_form", f"the form must have one field, 'image' or 'file', got {received}")
