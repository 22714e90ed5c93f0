"""The service as an application of Ray Serve: `serve run lensbox.serve.ray_app:app artifact=detector.pt`.

Each replica is one process with all routes of the service: the replica decodes, batches and computes. Ray
starts and replaces replicas, assigns GPUs, and sends each request to the replica with the fewest requests.
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
        # A replica that Ray removes gets no new requests, and this time to drain.
        graceful_shutdown_timeout_s=settings.shutdown_timeout,
    ).bind()


class Replica:
    """The methods that Ray calls on a replica, beside requests."""

    app: FastAPI  # of `serve.ingress`

    def check_health(self) -> None:
        """Raise NotReadyError if the model is not ready, like `/readyz`. Ray then replaces this replica."""
        self.app.state.service.check_ready()


def _app_maker(arguments: Arguments) -> Callable[[], FastAPI]:
    """Return a function that makes the app of one replica, in the replica's process."""

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
            """Start the app and wait until the model is ready. Ray sends no requests before."""
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
