"""Reads a request's body under a size limit and a time limit."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

import anyio
from fastapi import Request
from starlette.requests import ClientDisconnect

from lensbox.serve.deadline import Deadline, clients_deadline
from lensbox.serve.errors import ApiError
from lensbox.serve.settings import Settings

Body = bytes | bytearray


async def receive(request: Request, limit: int, settings: Settings) -> tuple[bytes, Deadline]:
    """As `receive_encoded`. Raises ApiError (415) for a body that is compressed."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise ApiError(415, "unsupported_encoding", f"Content-Encoding must be identity, got {encoding!r}")
    body, deadline = await _receive(request, limit, settings)
    return bytes(body), deadline


async def receive_encoded(request: Request, limit: int, settings: Settings) -> tuple[bytearray, Deadline]:
    """The whole body, of at most `limit` bytes, in its Content-Encoding, and until when it is to be answered.

    That is `answer_timeout` from the end of the body on, or what X-Request-Timeout-Ms says, from now on, if
    that comes sooner. Raises DeadlineError; ApiError as `clients_deadline` does, and for the body: 400 empty,
    408 too slow, 413 too large.
    """
    body, deadline = await _receive(request, limit, settings)
    return body if isinstance(body, bytearray) else bytearray(body), deadline


async def _receive(request: Request, limit: int, settings: Settings) -> tuple[Body, Deadline]:
    asked = clients_deadline(request)
    try:
        body = await _read(request, limit, min(settings.body_timeout, asked.left))
    except ApiError as error:
        if error.status == 408 and not asked.left:
            raise asked.error() from None
        raise
    return body, min(asked, Deadline.after(settings.answer_timeout), key=lambda deadline: deadline.at)


async def _read(request: Request, limit: int, timeout: float) -> Body:
    """The limit holds while the body arrives, so it also holds for chunked ones, which declare no length."""
    declared = request.headers.get("content-length")
    if declared is not None and int(declared) > limit:  # the server has checked that it is a number
        raise _too_large(limit, f"a Content-Length of {declared}")
    try:
        body = await _within(timeout, _collect(request, limit))
    except TimeoutError:
        raise ApiError(
            408,
            "body_timeout",
            f"the body must arrive within {timeout:g} seconds; it was still incomplete",
            {"Connection": "close"},
        ) from None
    if not body:
        raise ApiError(400, "empty_body", "the body must not be empty, got 0 bytes")
    return body


if sys.version_info >= (3, 11):  # a tenth of anyio's time

    async def _within(seconds: float, steps: Coroutine[Any, Any, Body]) -> Body:
        async with asyncio.timeout(seconds):
            return await steps
else:

    async def _within(seconds: float, steps: Coroutine[Any, Any, Body]) -> Body:
        with anyio.fail_after(seconds):
            return await steps


async def _collect(request: Request, limit: int) -> Body:
    """A body that comes in one piece, as those of photographs mostly do, is not copied."""
    body: Body = b""
    is_whole = False
    while not is_whole:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        if len(body) + len(chunk) > limit:
            raise _too_large(limit, f"{len(body) + len(chunk)} and maybe more")
        if not body:
            body = chunk
        elif chunk:
            body = body if isinstance(body, bytearray) else bytearray(body)
            body += chunk
        is_whole = not message.get("more_body", False)
    return body


def _too_large(limit: int, received: str) -> ApiError:
    return ApiError(413, "body_too_large", f"the body must have at most {limit} bytes, got {received}")
