"""Put the service together as a FastAPI app."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from lensbox.serve.http.answers import no_endpoint
from lensbox.serve.http.edge import Edge
from lensbox.serve.http.paths import ENDPOINTS, describe
from lensbox.serve.http.service import Service
from lensbox.serve.observability.tracing import end_traces, telemetry

_log = logging.getLogger(__name__)

_STOP_TIMEOUT = 0.2  # seconds; an idle model stops at once
_MAY_BE_READ = (
    "Inference-Header-Content-Length",
    "Lensbox-Model",
    "Lensbox-Version",
    "Retry-After",
    "X-Request-ID",
)


def create_app(service: Service) -> FastAPI:
    """Return the ASGI application. Models load in the background; /readyz answers 200 once all are ready."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.metrics.watch(service.state)
        models.check_process = service.decoders.check
        await models.start()
        try:
            yield
        finally:
            if tracing["tracing"]:
                await asyncio.to_thread(end_traces)
            # the server has waited for requests, so no client waits for the work that still runs.
            service.decoders.stop()
            service.json_parser.shutdown(wait=False, cancel_futures=True)
            if not await models.stop(_STOP_TIMEOUT):
                _log.warning("the model still loads or computes; the process ends without waiting for it")

    models, tracing = service.models, telemetry(tuple(one.path for one in ENDPOINTS if one.is_probe))
    app = FastAPI(
        title="Lensbox",
        version=version("lensbox"),
        summary="Runs one detector on photographs, and computes the GIoU loss of boxes.",
        lifespan=lifespan,
        exception_handlers={HTTPException: no_endpoint},
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=tracing,
    )
    app.state.service = service
    for one in ENDPOINTS:
        app.add_route(one.path, one, [one.method])  # type: ignore[arg-type]  # Starlette takes ASGI apps, too
    describe(app, needs_key=bool(service.keys.api))
    # The middleware added last is the outermost.
    if origins := service.settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins.split(","),
            allow_methods=("GET", "POST"),
            allow_headers=["*"],
            allow_private_network=True,  # the service may be in one
            expose_headers=_MAY_BE_READ,
        )
    app.add_middleware(Edge, service=service)
    return app
