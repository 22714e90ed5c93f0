"""Lets requests through that come with a known key, and not too often."""

import math
from collections.abc import Iterable

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lensbox.serve.errors import error_response
from lensbox.serve.observability.logs import CURRENT
from lensbox.serve.security.access import Access
from lensbox.serve.security.api_keys import KeyFile
from lensbox.serve.security.client_address import network_of
from lensbox.serve.security.token_buckets import Level, TokenBuckets

# Probes, which say no more than yes or no, and the page, which has a field for the key. Not the metrics: they
# tell who uses the service how much, and Prometheus can send a key.
_OPEN = frozenset({"/", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"})
_OPEN_FOLDER = "/page/"

_CHALLENGE = 'Bearer realm="lensbox"'


class Guard:
    """An ASGI application behind keys and rates. What is refused does not reach it, whatever its path."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._key_file = access.key_file
        self._buckets = access.buckets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_open(scope["path"]):
            await self._app(scope, receive, send)
            return
        client = network_of((scope.get("client") or ("", 0))[0])
        if self._key_file is not None:
            key = _key(scope["headers"])
            name = None if key is None else self._key_file.keys.name_of(key)
            if name is None:
                await _refuse_key(key is not None, scope, receive, send)
                return
            client = name
            if (ids := CURRENT.get()) is not None:
                CURRENT.set(ids._replace(key=name))
        if self._buckets is None:
            await self._app(scope, receive, send)
            return
        level = self._buckets.take(client)
        send = _with_headers(send, _level_headers(self._buckets, level))
        if level.allowed:
            await self._app(scope, receive, send)
        else:
            await _refuse_rate(self._buckets, level, self._key_file, scope, receive, send)


def is_open(path: str) -> bool:
    """Whether a path is answered to everybody, and always."""
    return path in _OPEN or path.startswith(_OPEN_FOLDER)


def _key(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """What a request was sent with: X-API-Key, else the token of Authorization; none if it came more than
    once."""
    sent: dict[bytes, list[bytes]] = {b"x-api-key": [], b"authorization": []}
    for name, value in headers:
        if name in sent:
            sent[name].append(value.strip())
    if sent[b"x-api-key"]:
        return sent[b"x-api-key"][0] if len(sent[b"x-api-key"]) == 1 else None
    if len(sent[b"authorization"]) != 1:
        return None
    scheme, _, token = sent[b"authorization"][0].partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else None


async def _refuse_key(was_sent: bool, scope: Scope, receive: Receive, send: Send) -> None:
    got = "one that is not known" if was_sent else "none"
    message = f"a key must come as 'Authorization: Bearer KEY' or 'X-API-Key: KEY', got {got}"
    challenge = f'{_CHALLENGE}, error="invalid_token"' if was_sent else _CHALLENGE
    request = Request(scope)
    response = error_response(request, 401, "unauthorized", message, {"WWW-Authenticate": challenge})
    await response(scope, receive, send)


async def _refuse_rate(
    buckets: TokenBuckets,
    level: Level,
    key_file: KeyFile | None,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    whose = "an address" if key_file is None else "a key"
    message = (
        f"the requests of {whose} must be at most {buckets.burst} at once and {buckets.rate:g} a second; "
        f"the next may come in {level.next:.1f} seconds"
    )
    headers = {"Retry-After": str(max(1, math.ceil(level.next)))}
    response = error_response(Request(scope), 429, "rate_limited", message, headers)
    await response(scope, receive, send)


def _level_headers(buckets: TokenBuckets, level: Level) -> list[tuple[bytes, bytes]]:
    """As IETF's draft "RateLimit header fields for HTTP" has them since its eighth version."""
    window = math.ceil(buckets.burst / buckets.rate)
    return [
        (b"ratelimit-policy", f'"default";q={buckets.burst};w={window}'.encode()),
        (b"ratelimit", f'"default";r={level.left};t={math.ceil(level.full)}'.encode()),
    ]


def _with_headers(send: Send, headers: list[tuple[bytes, bytes]]) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *headers]
        await send(message)

    return send_with_headers
