"""The outermost middleware: assign IDs to each request, count the request and log it."""

import logging
import re
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lensbox.serve.observability.logs import CURRENT, HEADER, RequestIds, request_ids
from lensbox.serve.observability.metrics import Metrics

_log = logging.getLogger("lensbox.serve.access")

_NO_ENDPOINT = "none"  # the route of a request that matches no endpoint
CLIENT_GONE = 499  # nginx's status for a client that closed the connection; only logs and metrics show it
_LONGEST_PATH = 1000
_ADDRESS = re.compile(r"[0-9A-Fa-f.:]{2,45}(%[0-9A-Za-z]{1,16})?")


class Observed:
    """Wrap an ASGI application; its responses carry X-Request-ID."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        ids = request_ids(scope["headers"])
        CURRENT.set(ids)  # never reset: uvicorn runs each request in a separate context
        start = time.perf_counter()
        status = CLIENT_GONE

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (HEADER, ids.request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            report(self._metrics, scope, status, time.perf_counter() - start, CURRENT.get() or ids)


def report(metrics: Metrics, scope: Scope, status: int, seconds: float, ids: RequestIds) -> None:
    """Count and log an answered request."""
    served = scope.get("lensbox.model")  # a `Served`
    model = (served.name, served.version) if served is not None else ()
    metrics.request_answered(_route(scope), status, seconds, *model)
    is_probe = getattr(scope.get("route"), "is_probe", False)  # every few seconds
    level = logging.DEBUG if is_probe else logging.INFO
    if _log.isEnabledFor(level):
        _log_request(level, scope, status, seconds, ids, "/".join(model))


def _route(scope: Scope) -> str:
    """Return the path of the endpoint as declared; the endpoint stores itself in the scope."""
    return getattr(scope.get("route"), "path", _NO_ENDPOINT)


def _log_request(level: int, scope: Scope, status: int, seconds: float, ids: RequestIds, model: str) -> None:
    # The raw path has its line breaks percent-encoded, so a path cannot forge a log line.
    path = scope.get("raw_path", b"")[:_LONGEST_PATH].decode("ascii", "backslashreplace")
    host, port = scope.get("client") or ("", 0)
    if host and not _ADDRESS.fullmatch(host):  # X-Forwarded-For may hold any text
        host = "invalid"
    milliseconds = round(1000 * seconds, 3)
    fields: dict[str, Any] = {
        "method": scope["method"],
        "path": path,
        "route": _route(scope),
        "status": status,
        "milliseconds": milliseconds,
        "client": f"{host}:{port}",
        **({"model": model} if model else {}),
    }
    _log.log(
        level,
        "%s %s %d %.1f ms %s:%s %s%s",
        *(scope["method"], path, status, milliseconds, host, port, ids.request_id, model and f" {model}"),
        extra={"fields": fields},
    )
