"""Puts the service together."""

import asyncio
import functools
import logging
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.types import ASGIApp

from lensbox.runtime import Artifact
from lensbox.serve.decoding import Decoders
from lensbox.serve.direct_routes import DirectEndpoints, DirectRoutes
from lensbox.serve.engine.devices import device_names
from lensbox.serve.engine.engines import Engine, Engines
from lensbox.serve.engine.instance import observed_instance
from lensbox.serve.errors import add_error_handlers
from lensbox.serve.head_requests import HeadAsGet
from lensbox.serve.leave_to_send import LeaveToSend
from lensbox.serve.loading import load_model
from lensbox.serve.observability.metrics import Metrics
from lensbox.serve.observability.middleware import Observed
from lensbox.serve.observability.tracing import start_tracing
from lensbox.serve.processes.heartbeat import Peers
from lensbox.serve.routes import detect, evaluate, health, loss, model, page
from lensbox.serve.routes import metrics as metrics_route
from lensbox.serve.security.access import Access
from lensbox.serve.security.middleware import secured
from lensbox.serve.security.openapi import add_access
from lensbox.serve.service import Service
from lensbox.serve.settings import Settings
from lensbox.serve.url_fetch import UrlFetcher
from lensbox.serve.url_rules import UrlRules
from lensbox.serve.v2 import routes as v2

if TYPE_CHECKING:
    from lensbox.serve.observability.tracing import Tracing

_log = logging.getLogger(__name__)

_STOP_TIMEOUT = 0.2  # seconds; an idle model stops at once


def create_app(
    settings: Settings,
    load: Callable[[], Artifact] | None = None,
    on_started: Callable[[Exception | None], None] | None = None,
    engine: Engine | None = None,
    access: Access | None = None,
    tracing: "Tracing | None" = None,
    peers: Peers | None = None,
) -> "App":
    """The ASGI application. It answers at once; /readyz tells when the model is ready.

    load: gives the artifact, in the inference thread; default: from `settings`, self-tested and warmed up.
    on_started: called in that thread with None when the model is ready, or with load's exception.
        Without it the exception is logged, and /readyz says what it was. Of several engines, when all are.
    engine: one that is there already, in other processes, instead of one that calls `load`.
    access: who may ask, shared with other processes; default: as `settings` say. Raises KeyFileError.
    tracing: takes the spans of requests; default: as `settings` and the environment say. Raises TracingError.
    peers: other processes that accept the same connections. /readyz waits for them.
    """

    metrics = Metrics()
    # One of several processes speaks for all of them.
    log_level = logging.INFO if access is None or engine is None else logging.DEBUG
    access = access or Access.of(settings)
    tracing = tracing or start_tracing(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        instance = engine or _engine(settings, load, on_started or _log_start, metrics)
        if tracing is not None:
            instance = tracing.engine(instance)
        decoders = Decoders(
            settings.decode_threads, settings.max_pixels, settings.answer_timeout, metrics.image_decoded
        )
        # Apart from the decoders: a loss does not wait for images. One thread, because parsing holds the GIL.
        json_parser = ThreadPoolExecutor(1, thread_name_prefix="lensbox-json")
        urls = UrlFetcher(UrlRules(settings.url_allow), settings.url_timeout)
        app.state.service = service = Service(settings, instance, decoders, json_parser, urls, metrics, peers)
        metrics.watch(service.state)
        instance.start()
        if access.key_file is not None:
            access.key_file.watch(log_level)
        try:
            yield
        finally:
            if access.key_file is not None:
                access.key_file.stop()
            if tracing is not None:
                await asyncio.to_thread(tracing.stop)
            # The server has waited for requests: whatever goes on now, nobody waits for it any more.
            decoders.stop()
            json_parser.shutdown(wait=False, cancel_futures=True)
            if not await asyncio.to_thread(instance.stop, _STOP_TIMEOUT):
                doing = "busy" if instance.loaded else "loading"
                _log.warning("the model is still %s and is left behind", doing)

    app = App(
        title="Lensbox",
        version=version("lensbox"),
        summary="Runs one detector on photographs, and computes the GIoU loss of boxes.",
        lifespan=lifespan,
    )
    app.metrics = metrics
    app.access = access
    app.guarded = lambda inner: secured(inner, settings, access)
    app.traced = (lambda inner: inner) if tracing is None else tracing.app
    app.is_traced = tracing is not None
    working = [route for module in (detect, evaluate, loss, v2) for route in module.router.routes]
    app.endpoints = DirectEndpoints(working)
    add_error_handlers(app)
    for route in (health, model, detect, evaluate, loss, metrics_route, v2):
        app.include_router(route.router)
    if not settings.no_page:
        app.include_router(page.router)
    app.add_middleware(DirectRoutes, endpoints=app.endpoints, handlers=app.exception_handlers)
    return app


class App(FastAPI):
    """Observed from outside of all that answers: also of the answer to a defect.

    endpoints: those that do the work.
    """

    metrics: Metrics
    access: Access
    endpoints: DirectEndpoints
    is_traced: bool
    guarded: Callable[[ASGIApp], ASGIApp]
    traced: Callable[[ASGIApp], ASGIApp]

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            add_access(super().openapi(), self.access)
        return super().openapi()

    def build_middleware_stack(self) -> ASGIApp:
        answering = HeadAsGet(super().build_middleware_stack())
        guarded = LeaveToSend(self.guarded(answering))
        return Observed(self.traced(guarded), self.metrics)


def _engine(
    settings: Settings,
    load: Callable[[], Artifact] | None,
    on_started: Callable[[Exception | None], None],
    metrics: Metrics,
) -> Engine:
    """An engine in this process, or one for each of several devices."""
    if load is not None:
        return observed_instance(load, settings, on_started, metrics)
    devices = device_names(settings)
    starting = len(devices)
    lock = threading.Lock()

    def count(failure: Exception | None) -> None:
        nonlocal starting
        with lock:
            starting -= failure is None
            if failure is not None or starting == 0:
                on_started(failure)

    own = [replace(settings, device=device, devices="") for device in devices]
    engines = [observed_instance(functools.partial(load_model, one), one, count, metrics) for one in own]
    return engines[0] if len(engines) == 1 else Engines(engines)


def _log_start(failure: Exception | None) -> None:
    if failure is not None:
        _log.error("the model cannot be used: %s", failure)
