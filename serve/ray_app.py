"""The service as an application of Ray Serve: `serve run lensbox.serve.ray_app:app artifact=detector.pt`.

Each replica is a service of one process with all of its routes: it decodes, batches and computes. Ray starts
and replaces replicas, gives each its part of the GPUs, and sends requests to the one with the fewest.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve import Application

from lensbox.serve.http.app import create_app
from lensbox.serve.observability.logs import LogStyle
from lensbox.serve.ray_arguments import Arguments, read_arguments

_log = logging.getLogger(__name__)

DEPLOYMENT = "lensbox"
_HEALTH_CHECK_PERIOD = 5.0  # seconds


def app(arguments: dict[str, Any]) -> Application:
    """Build the application, as `serve run`, `serve deploy` and KubeRay call it.

    arguments: see `read_arguments`. Raises ValueError naming an argument, its rule and the value received.
    """
    read = read_arguments(arguments)
    settings, scaling = read
    replica = serve.ingress(_app_maker(read))(Replica)
    return serve.deployment(
        replica,
        name=DEPLOYMENT,
        ray_actor_options={"num_cpus": scaling.num_cpus, "num_gpus": scaling.num_gpus},
        autoscaling_config={
            "min_replicas": scaling.min_replicas,
            "max_replicas": scaling.max_replicas,
            "target_ongoing_requests": scaling.target_ongoing_requests,
        },
        max_ongoing_requests=settings.max_requests,
        max_queued_requests=scaling.max_queued_requests,
        health_check_period_s=_HEALTH_CHECK_PERIOD,
        # A replica that is to go gets no more requests, and this long for those that it has.
        graceful_shutdown_timeout_s=settings.shutdown_timeout,
    ).bind()


class Replica:
    """Calls of Ray to a replica, beside requests."""

    app: FastAPI  # of `serve.ingress`

    def check_health(self) -> None:
        """Check as `/readyz` does: raise NotReadyError, so that Ray replaces this replica."""
        self.app.state.service.check_ready()


def _app_maker(arguments: Arguments) -> Callable[[], FastAPI]:
    """Return the function that makes the app of one replica, in the replica's process."""

    def make() -> FastAPI:
        settings, scaling = arguments
        LogStyle(scaling.log_level, scaling.log_format).start()
        started: Future[None] = Future()

        def on_started(failure: Exception | None) -> None:
            if failure is None:
                started.set_result(None)
            else:
                started.set_exception(failure)

        made = create_app(settings, on_started=on_started)
        lifespan = made.router.lifespan_context

        @asynccontextmanager
        async def until_ready(app: FastAPI) -> AsyncIterator[None]:
            """Ray sends requests once this has begun: not before the model is ready."""
            async with lifespan(app):
                try:
                    await asyncio.wrap_future(started)
                except Exception as error:
                    _log.error("the model cannot be used: %s", error)
                    raise
                _log.info("ready: %s", settings.artifact)
                yield

        made.router.lifespan_context = until_ready
        return made

    return make
