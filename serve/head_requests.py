"""HEAD, which programs that watch a service like to send."""

from starlette.types import ASGIApp, Receive, Scope, Send


class HeadAsGet:
    """An ASGI application that answers HEAD as GET; the server leaves the body out."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        as_get = {**scope, "method": "GET"}
        try:
            await self._app(as_get, receive, send)
        finally:
            if "route" in as_get:  # for metrics and logs
                scope["route"] = as_get["route"]
