"""The outermost middleware: IDs and headers of every answer, and the count and log line of each request."""

import logging
import re
import secrets
import time
from typing import Any

from opentelemetry import trace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lensbox.serve.http.answers import CLIENT_GONE
from lensbox.serve.http.service import SERVED, Service
from lensbox.serve.observability.logs import CURRENT

_log = logging.getLogger("lensbox.serve.access")

_NO_ENDPOINT = "none"  # the route of a request that matches no endpoint
_LONGEST_PATH = 1000
_ID = b"x-request-id"
# Only characters that cannot break a log line, a header or a query of a log database.
_VALID_ID = re.compile(rb"[A-Za-z0-9._~:/+=@-]{1,128}")
_ADDRESS = re.compile(r"[0-9A-Fa-f.:]{2,45}(%[0-9A-Za-z]{1,16})?")
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"permissions-policy", b"camera=(self), microphone=(), geolocation=()"),
]
# The page loads scripts and styles only from this service. frame-ancestors: no other site may embed it.
_POLICY = (
    b"content-security-policy",
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
)
# FastAPI's page starts Swagger UI in the page itself, and Swagger UI sets styles.
_DOCS_POLICY = (
    _POLICY[0],
    b"default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    b"img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
)


class Edge:
    """Wrap an ASGI application. Close connections while the service drains."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name == _ID]
        is_valid = len(given) == 1 and _VALID_ID.fullmatch(given[0])  # else ignored
        ids = {"request_id": given[0].decode() if is_valid else secrets.token_hex(16)}
        span = trace.get_current_span()  # see `tracing`
        if span.is_recording():
            ids["trace_id"] = f"{span.get_span_context().trace_id:032x}"
            span.set_attribute("lensbox.request_id", ids["request_id"])
        CURRENT.set(ids)  # never reset: each request is a task with a context of its own
        start = time.perf_counter()
        status = CLIENT_GONE

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (_ID, ids["request_id"].encode()), *_HEADERS]
                headers.append(_DOCS_POLICY if scope["path"] == "/docs" else _POLICY)
                if (served := scope.get(SERVED)) is not None:
                    headers += served.headers
                if self._service.draining:
                    headers.append((b"connection", b"close"))
                message["headers"] = headers
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            self._report(scope, status, time.perf_counter() - start)

    def _report(self, scope: Scope, status: int, seconds: float) -> None:
        """Count and log an answered request. The endpoint stores itself and the model in the scope."""
        endpoint, served = scope.get("route"), scope.get(SERVED)
        route = getattr(endpoint, "path", _NO_ENDPOINT)  # as declared
        model = (served.name, served.version) if served is not None else ()
        self._service.metrics.request_answered(route, status, seconds, *model)
        level = logging.DEBUG if getattr(endpoint, "is_probe", False) else logging.INFO
        if not _log.isEnabledFor(level):
            return
        host, port = scope.get("client") or ("", 0)
        if host and not _ADDRESS.fullmatch(host):  # X-Forwarded-For may hold any text
            host = "invalid"
        fields: dict[str, Any] = {
            "method": scope["method"],
            # The raw path has its line breaks percent-encoded, so a path cannot forge a log line.
            "path": scope.get("raw_path", b"")[:_LONGEST_PATH].decode("ascii", "backslashreplace"),
            "route": route,
            "status": status,
            "milliseconds": round(1000 * seconds, 3),
            "client": f"{host}:{port}",
            **({"model": "/".join(model)} if model else {}),
        }
        line = "%(method)s %(path)s %(status)d %(milliseconds).1f ms %(client)s %(request_id)s"
        line += " %(model)s" if model else ""
        _log.log(level, line, {**fields, **CURRENT.get()}, extra={"fields": fields})
