"""Put the service together as a FastAPI app."""

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from lensbox.serve.http.answers import no_endpoint
from lensbox.serve.http.api_keys import Keys
from lensbox.serve.http.edge import Edge
from lensbox.serve.http.paths import ENDPOINTS, describe
from lensbox.serve.http.service import Service
from lensbox.serve.models.served import Models
from lensbox.serve.observability.metrics import Metrics
from lensbox.serve.observability.tracing import end_traces, telemetry
from lensbox.serve.requests.decoding import Decoders
from lensbox.serve.settings import Settings

_log = logging.getLogger(__name__)

_STOP_TIMEOUT = 0.2  # seconds; an idle model stops at once
_MAY_BE_READ = (
    "Inference-Header-Content-Length",
    "Lensbox-Model",
    "Lensbox-Version",
    "Retry-After",
    "X-Request-ID",
)


def create_app(settings: Settings, models: Models, keys: Keys, metrics: Metrics) -> FastAPI:
    """Return the ASGI application. Models load in the background; /readyz answers 200 once all are ready."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        decoders = Decoders(settings, metrics.image_decoded)
        # Not the decoders' threads: a loss does not wait for images. One thread, as parsing holds the GIL.
        json_parser = ThreadPoolExecutor(1, thread_name_prefix="lensbox-json")
        app.state.service = service = Service(settings, models, decoders, json_parser, metrics)
        metrics.watch(service.state)
        models.check_process = decoders.check
        await models.start()
        try:
            yield
        finally:
            if tracing["tracing"]:
                await asyncio.to_thread(end_traces)
            # uvicorn has waited for requests, so no client waits for the work that still runs.
            decoders.stop()
            json_parser.shutdown(wait=False, cancel_futures=True)
            if not await models.stop(_STOP_TIMEOUT):
                _log.warning("the model still loads or computes; the process ends without waiting for it")

    tracing = telemetry(tuple(one.path for one in ENDPOINTS if one.is_probe))
    app = FastAPI(
        title="Lensbox",
        version=version("lensbox"),
        summary="Runs one detector on photographs, and computes the GIoU loss of boxes.",
        lifespan=lifespan,
        exception_handlers={HTTPException: no_endpoint},
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,
        telemetry=tracing,
    )
    app.state.metrics = metrics
    app.state.keys = keys
    for one in ENDPOINTS:
        app.add_route(one.path, one, [one.method])  # type: ignore[arg-type]  # Starlette takes ASGI apps, too
    describe(app, needs_key=bool(keys.api))
    # The middleware added last is the outermost.
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins.split(","),
            allow_methods=("GET", "POST"),
            allow_headers=["*"],
            expose_headers=_MAY_BE_READ,
        )
    app.add_middleware(Edge, state=app)
    return app
