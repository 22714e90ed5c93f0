"""Around all of the app: gives each request its ids, counts it and logs it."""

import logging
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lensbox.serve.observability.metrics import Metrics
from lensbox.serve.observability.request_ids import CURRENT, HEADER, RequestIds, request_ids

_log = logging.getLogger("lensbox.serve.access")

_NO_ENDPOINT = "none"  # the route of what matches no endpoint
_CLIENT_GONE = 499  # nginx's word for a request that nobody waits for
_LONGEST_PATH = 1000


class Observed:
    """An ASGI application and what is observed of it. Its answers carry X-Request-ID."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        ids = request_ids(scope["headers"])
        CURRENT.set(ids)  # for good: the server runs each request in a context of its own, and logs after it
        start = time.perf_counter()
        status = _CLIENT_GONE

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
    """Counts and logs a request that has been answered."""
    metrics.request_answered(_route(scope), status, seconds)
    if _log.isEnabledFor(logging.INFO):
        _log_request(scope, status, seconds, ids)


def _route(scope: Scope) -> str:
    """The path of the endpoint as it is declared; the router leaves it in the scope."""
    return getattr(scope.get("route"), "path", _NO_ENDPOINT)


def _log_request(scope: Scope, status: int, seconds: float, ids: RequestIds) -> None:
    # As it came over the wire, where line breaks and the like are percent-encoded.
    path = scope.get("raw_path", b"")[:_LONGEST_PATH].decode("ascii", "backslashreplace")
    host, port = scope.get("client") or ("", 0)
    milliseconds = round(1000 * seconds, 3)
    fields: dict[str, Any] = {
        "method": scope["method"],
        "path": path,
        "route": _route(scope),
        "status": status,
        "milliseconds": milliseconds,
        "client": f"{host}:{port}",
    }
    _log.info(
        "%s %s %d %.1f ms %s:%s %s%s",
        *(scope["method"], path, status, milliseconds, host, port, ids.request_id),
        f" key={ids.key}" if ids.key else "",
        extra={"fields": fields},
    )
