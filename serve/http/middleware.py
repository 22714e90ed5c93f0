"""ASGI middleware, outermost first: `Edge`, `Guard`, `admission.Admission`, `Defects`, `direct.Direct`.

`observability.middleware.Observed` encloses all of them. CORS is between `Edge` and `Guard`.
"""

import hmac
import logging
from collections.abc import Sequence

from fastapi import FastAPI
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lensbox.serve.engine.errors import NotReadyError, OverloadError
from lensbox.serve.http.admission import SlowReaderError, header_values
from lensbox.serve.http.errors import error_response
from lensbox.serve.requests.errors import shown

_log = logging.getLogger(__name__)

# The pages load scripts and styles only from this service. frame-ancestors: no other site may embed them.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"permissions-policy", b"camera=(self), microphone=(), geolocation=()"),
    (b"content-security-policy", _POLICY.encode()),
]
# Paths without authentication: probes, the pages, and the OpenAPI document. /metrics needs a key, because
# metrics show how much the service is used; Prometheus can send a key.
_OPEN = frozenset(
    {"/", "/docs", "/openapi.json", "/livez", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"}
)
_OPEN_FOLDER = "/page/"
_CLOSE = (b"connection", b"close")


class Edge:
    """Check the Host and Upgrade headers of every request, and add headers to every answer.

    Answer HEAD as GET, without the body. Send `Connection: close` while the service drains, and with an
    answer that replaces `100 Continue`: the bytes that follow could be the body or another request.
    """

    def __init__(self, app: ASGIApp, state: FastAPI) -> None:
        self._app = app
        self._state = state.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        may_send_body = not header_values(scope, b"expect")

        async def receive_body() -> Message:
            nonlocal may_send_body
            may_send_body = True  # uvicorn sends 100 Continue when the app reads the body
            return await receive()

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), *_SECURITY_HEADERS]
                service = getattr(self._state, "service", None)
                if not may_send_body or (service is not None and service.draining):
                    headers = [header for header in headers if header[0] != b"connection"] + [_CLOSE]
                message = {**message, "headers": headers}
            await send(message)

        if (fault := _fault(scope)) is not None:
            await fault(scope, receive, send_with_headers)
        elif scope["method"] == "HEAD":
            as_get = {**scope, "method": "GET"}
            try:
                await self._app(as_get, receive_body, send_with_headers)
            finally:
                scope["route"] = as_get.get("route")  # for metrics and logs
        else:
            await self._app(scope, receive_body, send_with_headers)


def _fault(scope: Scope) -> Response | None:
    """Return the error answer to a request without exactly one Host, or to a POST with Upgrade; else None."""
    hosts = header_values(scope, b"host")
    if len(hosts) != 1 and (hosts or scope["http_version"] != "1.0"):
        message = f"a request must have exactly one Host header, got {len(hosts)}"
        return error_response(scope["path"], 400, "invalid_host", message, {"Connection": "close"})
    if scope["method"] == "POST" and (offers := header_values(scope, b"upgrade")):
        # uvicorn drops the body of a request with an Upgrade header.
        message = f"a POST must have no Upgrade header (Java: Version.HTTP_1_1), got {shown(offers[0])}"
        return error_response(scope["path"], 400, "unsupported_upgrade", message, {"Connection": "close"})
    return None


class Guard:
    """Answer 401 to requests without a known API key. Paths that are `is_open` need no key."""

    def __init__(self, app: ASGIApp, keys: Sequence[bytes]) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_open(scope["path"]) or self._knows(_sent_key(scope)):
            await self._app(scope, receive, send)
            return
        got = "an unknown key" if _sent_key(scope) else "none"
        message = f"send an API key as 'Authorization: Bearer KEY', got {got}"
        challenge = {"WWW-Authenticate": "Bearer"}
        answer = error_response(scope["path"], 401, "unauthorized", message, challenge)
        await answer(scope, receive, send)

    def _knows(self, key: bytes) -> bool:
        """Compare a key with all keys, so that the time tells nothing."""
        return sum(hmac.compare_digest(key, known) for known in self._keys) > 0


def is_open(path: str) -> bool:
    """Return whether a path needs no key."""
    return path in _OPEN or path.startswith(_OPEN_FOLDER)


def _sent_key(scope: Scope) -> bytes:
    """Return the key in the Authorization header; b"" without one."""
    scheme, _, key = b",".join(header_values(scope, b"authorization")).partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else b""


class Defects:
    """Answer 500 to an unhandled exception, and log its traceback."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, note)
        except (SlowReaderError, NotReadyError, OverloadError):
            raise
        except Exception:
            _log.exception("a request failed: %s %s", scope["method"], shown(scope["path"]))
            if not begun:
                message = "the service failed on this request; its log has the cause"
                headers = {"Connection": "close"}
                answer = error_response(scope["path"], 500, "internal_error", message, headers)
                await answer(scope, receive, send)
