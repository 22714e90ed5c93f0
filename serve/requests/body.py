"""Read a request's body under a size limit and a time limit."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from fastapi import Request
from starlette.requests import ClientDisconnect

from lensbox.serve.errors import ApiError, shown
from lensbox.serve.requests.futures import DEADLINE, NO_DEADLINE, Deadline
from lensbox.serve.settings import Settings

Body = bytes | bytearray

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
    deadline: Deadline = request.scope.get(DEADLINE, NO_DEADLINE)
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        rule = "Content-Encoding must be identity"
        raise ApiError(415, "unsupported_encoding", f"{rule}, got {shown(encoding)}")
    declared = request.headers.get("content-length")
    if declared is not None and int(declared) > limit:  # uvicorn has checked that the value is a number
        raise _too_large(limit, f"a Content-Length of {declared}")
    try:
        async with _time_limit(min(settings.body_timeout, deadline.left)):
            body = await _collect(request, limit)
    except TimeoutError:
        close = {"Connection": "close"}  # the next bytes could be the rest of the body or another request
        if not deadline.left:
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
