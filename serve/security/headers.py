"""What browsers are told with every answer."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The page has its scripts and styles in files of its own, and nothing comes from elsewhere: pictures and
# frames of the camera are drawn on a canvas, without an address. frame-ancestors: no other page may show it
# inside itself.
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
# FastAPI's pages of the interface, /docs and /redoc, load what they show it with.
_DOCS_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' https://cdn.jsdelivr.net; worker-src blob:; "
    "style-src 'unsafe-inline' https://cdn.jsdelivr.net https://fonts.googleapis.com; "
    "font-src https://fonts.gstatic.com; img-src data: https://fastapi.tiangolo.com https://cdn.redoc.ly; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_DOCS = frozenset({"/docs", "/docs/oauth2-redirect", "/redoc"})
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"permissions-policy", b"camera=(self), microphone=(), geolocation=()"),
]


def security_headers(path: str) -> list[tuple[bytes, bytes]]:
    """Those of an answer to a request for that path."""
    policy = _DOCS_POLICY if path in _DOCS else _PAGE_POLICY
    return [*_HEADERS, (b"content-security-policy", policy.encode())]


class SecurityHeaders:
    """An ASGI application whose answers all have these headers, errors among them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = security_headers(scope["path"])

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *headers]
            await send(message)

        await self._app(scope, receive, send_with_headers)
