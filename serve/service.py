"""What all requests of one app share."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from fastapi import Request

from lensbox.serve.deadline import Deadline
from lensbox.serve.decoding import Decoders
from lensbox.serve.engine.engines import Engine
from lensbox.serve.engine.errors import NotReadyError, OverloadError
from lensbox.serve.observability.metrics import Metrics, ServiceState
from lensbox.serve.processes.heartbeat import Peers
from lensbox.serve.settings import Settings
from lensbox.serve.url_fetch import UrlFetcher


@dataclass
class Service:
    """settings, the model's instance, the threads that decode and parse, what fetches images, what is
    measured, the other processes that serve, how many requests with a body are in progress, and whether the
    service is about to end."""

    settings: Settings
    instance: Engine
    decoders: Decoders
    json_parser: ThreadPoolExecutor
    urls: UrlFetcher
    metrics: Metrics
    peers: Peers | None = None
    in_progress: int = 0
    ending: bool = False

    def check_ready(self) -> None:
        """Raises NotReadyError unless the service can take images."""
        self.instance.ready_artifact()
        if self.decoders.stuck:
            raise NotReadyError("every decoder is busy with an image that takes too long")

    def check_alive(self) -> None:
        """Raises NotReadyError where only another process can help."""
        if reason := self.instance.lost:
            raise NotReadyError(reason)

    def check_available(self) -> None:
        """Raises NotReadyError unless balancers should send requests here, whichever process they come to."""
        if self.ending:
            raise NotReadyError("the service is shutting down")
        self.check_ready()
        if self.peers is not None:
            self.peers.check_ready()

    @property
    def is_ready(self) -> bool:
        """Whether `check_ready` raises nothing."""
        try:
            self.check_ready()
        except NotReadyError:
            return False
        return True

    def state(self) -> ServiceState:
        """How it stands now."""
        ready = self.is_ready and not self.ending
        return ServiceState(ready, self.instance.waiting, self.in_progress)

    def check_room(self, deadline: float) -> None:
        """Raises OverloadError if there is no room for another request, which has time until `deadline`."""
        if self.in_progress >= self.settings.max_requests:
            raise OverloadError(f"{self.in_progress} requests are already in progress; try again later")
        self.instance.check_room(deadline, self.in_progress)

    @contextmanager
    def admitted(self, deadline: Deadline) -> Iterator[None]:
        """Counts a request in, before its body is read. For the event loop's thread alone.

        deadline: the client's own. Raises OverloadError at the limit and where the engine has no room, and
        NotReadyError when the server gives the request up as it ends.
        """
        self.check_room(deadline.at)
        self.in_progress += 1
        try:
            yield
        except (
            asyncio.CancelledError
        ):  # by the server alone: a client that hangs up is noticed by other means
            raise NotReadyError("the service is shutting down") from None
        finally:
            self.in_progress -= 1


def service_of(request: Request) -> Service:
    """The service that a request belongs to."""
    service: Service = request.app.state.service
    return service
