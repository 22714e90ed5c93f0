"""The ASGI middleware around all paths."""

import asyncio

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lensbox.serve.http.errors import answer_to

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
_HEADERS, _DOCS_HEADERS = (
    [
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"permissions-policy", b"camera=(self), microphone=(), geolocation=()"),
        (b"content-security-policy", policy.encode()),
    ]
    for policy in (_POLICY, _DOCS_POLICY)
)
_CLOSE = (b"connection", b"close")


class Edge:
    """Turn exceptions into answers, add the headers of security and of the model.

    Close connections while the service drains.
    """

    def __init__(self, app: ASGIApp, state: FastAPI) -> None:
        self._app = app
        self._state = state.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = message["headers"]
                headers += _DOCS_HEADERS if scope["path"] == "/docs" else _HEADERS
                if (served := scope.get("lensbox.model")) is not None:
                    headers += served.headers
                if self._state.service.draining:
                    headers.append(_CLOSE)
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except (Exception, asyncio.CancelledError) as error:
            if begun:
                raise
            await answer_to(error, scope)(scope, receive, send_with_headers)
