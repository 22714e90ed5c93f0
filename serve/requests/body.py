"""Read a request's query, and its body under a size limit and a time limit: as it is, JSON, or a form."""

import asyncio
import base64
import math
import time
from collections.abc import AsyncGenerator
from functools import lru_cache
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from fastapi import Request
from msgspec import Struct
from msgspec.json import Decoder
from starlette.datastructures import FormData, Headers
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from lensbox.serve.errors import ApiError, DeadlineError, shortened
from lensbox.serve.settings import Settings

Body = bytes | bytearray
Typed = TypeVar("Typed")

JSON, FORM = "application/json", "multipart/form-data"
_TIMEOUT = "X-Request-Timeout-Ms"
_MOST_MILLISECONDS = 86_400_000  # a day


class TimeLimit:
    """Cancel the current task at a deadline, and raise ApiError in its place: 504, or 408 for a late body.

    The client's own time, if there is one, holds from the beginning on; `set` adds a limit of the service.
    A hang-up of the client cancels the task, too (`http.connection`), so nothing else watches for it.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self.at = math.inf  # of `time.monotonic`
        self._client = time.monotonic() + seconds, seconds
        self._seconds = seconds
        self._for_body = False
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float, for_body: bool = False) -> None:
        """Let the time end after some seconds, or at the client's deadline if that is sooner."""
        now = time.monotonic()
        self.at, self._seconds, self._for_body = now + seconds, seconds, for_body
        if self._client[0] < self.at:
            (self.at, self._seconds), self._for_body = self._client, False
        if self._timer is not None:
            self._timer.cancel()
        if self.at < math.inf:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, self.at - now), self._expire)

    def sooner(self, seconds: float) -> None:
        """Let the time end earlier, if `seconds` from now is earlier."""
        if time.monotonic() + seconds < self.at:
            self.set(seconds)

    def __enter__(self) -> "TimeLimit":
        self._task = asyncio.current_task()
        self.set(math.inf)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._is_over and kind is asyncio.CancelledError:
            if self._task is not None and hasattr(self._task, "uncancel"):  # from Python 3.11 on
                self._task.uncancel()
            limit = f"within {self._seconds:g} seconds"
            if self._for_body:
                message = f"the body must arrive {limit}, got an incomplete body"
                raise ApiError(408, "body_timeout", message) from None
            raise DeadlineError(f"no answer {limit}; try again later") from None

    def _expire(self) -> None:
        self._is_over = True
        if self._task is not None:
            self._task.cancel()


def time_limit(headers: Headers) -> TimeLimit:
    """Return the limit in the header X-Request-Timeout-Ms.

    Raise ApiError (422) unless it is a whole number of milliseconds from 1 to a day.
    """
    text = headers.get(_TIMEOUT)
    if text is None:
        return TimeLimit()
    milliseconds = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if not 1 <= milliseconds <= _MOST_MILLISECONDS:
        rule = f"must be a whole number of milliseconds from 1 to {_MOST_MILLISECONDS}"
        raise ApiError(422, "invalid_parameter", f"{_TIMEOUT} {rule}, got {shortened(text)}")
    return TimeLimit(milliseconds / 1000)


async def receive(request: Request, most: int, time: TimeLimit, settings: Settings) -> Body:
    """Return the whole body. Afterwards the request has `answer_timeout` for its answer.

    most: bytes. Raise ApiError: 400 empty, 408 too slow, 413 too large, 415 compressed.
    """
    encoding = ", ".join(request.headers.getlist("content-encoding"))
    if not {one.strip().lower() for one in encoding.split(",")} <= {"", "identity"}:
        rule = "Content-Encoding must be identity"
        raise ApiError(415, "unsupported_encoding", f"{rule}, got {shortened(encoding)}")
    declared = request.headers.get("content-length")
    if declared is not None and int(declared) > most:  # the parser has checked that the value is a number
        raise _too_large(most, declared)
    time.set(settings.body_timeout, for_body=True)
    body: Body = b""
    is_whole = False
    while not is_whole:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        if len(body) + len(chunk) > most:  # chunked bodies declare no length
            raise _too_large(most, f"at least {len(body) + len(chunk)}")
        if not body:  # most photographs arrive in a single piece, which is not copied
            body = chunk
        elif chunk:
            body = body if isinstance(body, bytearray) else bytearray(body)
            body += chunk
        is_whole = not message.get("more_body", False)
    time.set(settings.answer_timeout)
    if not body:
        raise ApiError(400, "empty_body", "the body must not be empty, got 0 bytes")
    return body


def _too_large(most: int, received: str) -> ApiError:
    return ApiError(413, "body_too_large", f"the body must have at most {most} bytes, got {received}")


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


@lru_cache(maxsize=64)  # clients repeat their queries, of at most 64 KiB
def query_parameters(query: bytes, kind: Any) -> Any:
    """Return the parameters in a query string. Raise ApiError (422) for an unknown or repeated name."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    if len(given := dict(pairs)) < len(pairs):
        raise ApiError(422, "invalid_parameter", f"each parameter must be given once, got {shortened(pairs)}")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        message = f"the query {shortened(given)}: {_fault(error, kind)}"
        raise ApiError(422, "invalid_parameter", message) from None


async def image_file(request: Request, body: Body) -> bytes:
    """Return the image file of a request: its body, or the only field of a form. Ignore names of files.

    Raise ApiError: 400 for a malformed form, 422 for other fields, several or none.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        return bytes(body)

    async def stream() -> AsyncGenerator[bytes, None]:
        yield bytes(body)

    limits = {"max_files": 1, "max_fields": 1, "max_part_size": len(body)}
    parser = MultiPartParser(request.headers, stream(), **limits)
    parser.spool_max_size = len(body) + 1  # keep files in memory: $TMPDIR may be full, or read-only
    try:
        form = await parser.parse()
        try:
            return await _only_field(form)
        finally:
            await form.close()
    except (MultiPartException, ValueError, KeyError) as error:
        raise ApiError(400, "malformed_form", f"the body must be a valid multipart form: {error}") from None


async def _only_field(form: FormData) -> bytes:
    fields = form.multi_items()
    if len(fields) != 1 or fields[0][0] not in ("image", "file"):
        got = shortened([name for name, _ in fields]) if fields else "none"
        raise ApiError(422, "invalid_form", f"the form must have one field, 'image' or 'file', got {got}")
    field = fields[0][1]
    if isinstance(field, str):  # without a file name, and read as text
        return field.encode("utf-8" if max(field, default="") > "\xff" else "latin-1")
    content = await field.read()
    is_base64 = field.headers.get("content-transfer-encoding", "").lower() == "base64"
    return base64.b64decode(content) if is_base64 else content
