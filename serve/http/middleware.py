"""ASGI middleware, outermost first: `Edge`, `Guard`, `admission.Admission`, `Defects`.

`observability.middleware.Observed` encloses all of them. CORS is between `Edge` and `Guard`.
"""

import hmac
import logging
from collections.abc import Sequence

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lensbox.serve.errors import NotReadyError, OverloadError, shown
from lensbox.serve.http.admission import header_values
from lensbox.serve.http.errors import error_response

_log = logging.getLogger(__name__)

# The page loads scripts and styles only from this service. frame-ancestors: no other site may embed it.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
# FastAPI's page loads Swagger UI from these hosts, and starts it in the page itself.
_DOCS_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' https://cdn.jsdelivr.net; "
    "style-src 'unsafe-inline' https://cdn.jsdelivr.net; img-src data: https://fastapi.tiangolo.com; "
    "connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"permissions-policy", b"camera=(self), microphone=(), geolocation=()"),
]
# Paths without authentication: probes, the pages, and the OpenAPI document. /metrics needs a key, because
# metrics show how much the service is used; Prometheus can send a key.
_OPEN = frozenset(
    {"/", "/docs", "/openapi.json", "/livez", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"}
)
_OPEN_FOLDER = "/page/"
_CLOSE = (b"connection", b"close")


class Edge:
    """Add security headers to every answer, and `Connection: close` while the service drains.

    HEAD is answered as GET; uvicorn sends no body.
    """

    def __init__(self, app: ASGIApp, state: FastAPI) -> None:
        self._app = app
        self._state = state.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                policy = _DOCS_POLICY if scope["path"] == "/docs" else _POLICY
                more = [*_SECURITY_HEADERS, (b"content-security-policy", policy.encode())]
                if self._state.service.draining:
                    more.append(_CLOSE)
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        if scope.get("method") == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send_with_headers)


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
        except (NotReadyError, OverloadError):
            raise
        except Exception:
            _log.exception("a request failed: %s %s", scope["method"], shown(scope["path"]))
            if not begun:
                message = "the service failed on this request; its log has the cause"
                headers = {"Connection": "close"}
                answer = error_response(scope["path"], 500, "internal_error", message, headers)
                await answer(scope, receive, send)
