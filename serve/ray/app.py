"""The service as an application of Ray Serve: `serve run lensbox.serve.ray.app:app artifact=detector.pt`.

Each replica is one process with all routes of the service: the replica decodes, batches and computes. Ray
starts and replaces replicas, assigns GPUs, and sends each request to the replica with the fewest requests.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve import Application, Deployment

from lensbox.serve.engine.instance import Instance
from lensbox.serve.http.api_keys import read_keys
from lensbox.serve.http.app import create_app
from lensbox.serve.http.service import Service
from lensbox.serve.loading import load_file
from lensbox.serve.models.served import Models, ModelVersion
from lensbox.serve.observability.logs import start_log
from lensbox.serve.observability.metrics import Metrics
from lensbox.serve.ray.settings import read_settings
from lensbox.serve.settings import Settings

_log = logging.getLogger(__name__)

DEPLOYMENT = "lensbox"
_HEALTH_CHECK_PERIOD, _LOOK = 5.0, 0.1  # seconds
# Requests of one replica, above which Ray adds another. The default of Ray, 2, would leave batches small.
_TARGET_REQUESTS = 16
_QUEUED_REQUESTS = 256  # in each of Ray's proxies; further requests get 503


def app(arguments: dict[str, Any]) -> Application:
    """Build the application, as `serve run`, `serve deploy` and KubeRay call it.

    arguments: see `read_settings`, whose errors are raised.
    """
    return deployment(read_settings(arguments)).bind()


def deployment(settings: Settings) -> Deployment:
    """Return the deployment, with defaults of what Ray's configuration file sets: replicas, CPUs and GPUs."""
    return serve.deployment(
        serve.ingress(_app_maker(settings))(Replica),
        name=DEPLOYMENT,
        autoscaling_config={"max_replicas": 4, "target_ongoing_requests": _TARGET_REQUESTS},
        max_ongoing_requests=settings.max_requests,
        max_queued_requests=_QUEUED_REQUESTS,
        health_check_period_s=_HEALTH_CHECK_PERIOD,
        # A replica that Ray removes gets no new requests, and this time to drain.
        graceful_shutdown_timeout_s=settings.shutdown_timeout,
    )


class Replica:
    """The methods that Ray calls on a replica, beside requests."""

    app: FastAPI  # of `serve.ingress`

    async def check_health(self) -> None:
        """Wait until the model is ready; raise if it is not usable. Ray then replaces this replica.

        Ray calls this method before the first request, and then at each health check.
        """
        while not self.app.state.started.is_set():
            await asyncio.sleep(_LOOK)
        self.app.state.service.check_ready()


def _app_maker(settings: Settings) -> Callable[[], FastAPI]:
    """Return a function that makes the app of one replica, in the replica's process."""

    def make() -> FastAPI:
        start_log("info", "json")
        metrics = Metrics()
        engine = Instance(partial(load_file, settings), settings, metrics)
        made = create_app(Service(settings, Models(ModelVersion(engine)), read_keys(settings), metrics))
        made.state.started = engine.started
        return made

    return make
