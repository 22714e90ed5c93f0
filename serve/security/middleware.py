"""The order in which a request meets what keeps the service safe."""

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from lensbox.serve.security.access import Access
from lensbox.serve.security.guard import Guard
from lensbox.serve.security.headers import SecurityHeaders
from lensbox.serve.settings import Settings

_MAY_BE_SENT = (
    "Authorization",
    "Content-Encoding",
    "Content-Type",
    "Inference-Header-Content-Length",
    "traceparent",
    "X-API-Key",
    "X-Request-ID",
    "X-Request-Timeout-Ms",
)
_MAY_BE_READ = (
    "Inference-Header-Content-Length",
    "RateLimit",
    "RateLimit-Policy",
    "Retry-After",
    "X-Request-ID",
)


def secured(app: ASGIApp, settings: Settings, access: Access) -> ASGIApp:
    """`app` behind keys and rates, which is behind CORS: a browser asks whether it may ask without a key, and
    its script may read why it is refused."""
    if access.key_file is not None or access.buckets is not None:
        app = Guard(app, access)
    if settings.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=settings.cors_origins.split(","),
            allow_methods=("GET", "POST"),
            allow_headers=_MAY_BE_SENT,
            expose_headers=_MAY_BE_READ,
        )
    return SecurityHeaders(app)
