"""The state that all requests of one app share."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from fastapi import Request

from lensbox.serve.errors import NotReadyError
from lensbox.serve.http.connections import Connections
from lensbox.serve.models.served import Models, Served
from lensbox.serve.observability.metrics import Metrics, ServiceState
from lensbox.serve.requests.decoding import Decoders
from lensbox.serve.settings import Settings


class Peers(Protocol):
    """The other front ends of a service. See `processes.shared_memory.Peers`."""

    def beat(self, is_ready: bool) -> None: ...

    def check_ready(self) -> None: ...


@dataclass
class Service:
    """Settings, models, threads and state of one app.

    peers: the other front ends, or None. in_progress: number of admitted requests. lone: number of admitted
    requests since two overlapped. draining: True once the service is shutting down.
    """

    settings: Settings
    models: Models
    decoders: Decoders
    json_parser: ThreadPoolExecutor
    metrics: Metrics
    connections: Connections
    peers: Peers | None = None
    in_progress: int = 0
    lone: int = 1
    draining: bool = False

    def begin_request(self, served: Served) -> None:
        """Count an admitted request, for a model."""
        served.in_progress += 1
        self.in_progress += 1
        self.lone = self.lone + 1 if self.in_progress == 1 else 0

    def end_request(self, served: Served) -> None:
        """Count the end of a request, whose answer has been sent."""
        served.in_progress -= 1
        self.in_progress -= 1

    @property
    def is_calm(self) -> bool:
        """True if the latest request and the one before it began with no other request in progress.

        One request is not enough: an engine answers a batch at once, and the first of the next requests then
        finds no other in progress. Ask the engine, too, for jobs of other front ends (`serves_others`).
        """
        return self.lone > 1

    def check_decoders(self) -> None:
        """Raise NotReadyError if no image can be decoded."""
        if self.decoders.stuck:
            raise NotReadyError("all decoding threads are stuck in images that take too long")

    def check_ready(self) -> None:
        """Raise NotReadyError unless the service can take images for all its models."""
        self.models.check_loaded()
        self.check_decoders()

    def check_alive(self) -> None:
        """Raise NotReadyError if only a restart of the process can help."""
        if reason := self.models.lost:
            raise NotReadyError(reason)

    def check_available(self) -> None:
        """Raise NotReadyError unless all front ends can take requests."""
        if self.draining:
            raise NotReadyError("the service is shutting down")
        self.check_ready()
        if self.peers is not None:
            self.peers.check_ready()

    @property
    def is_ready(self) -> bool:
        """True if `check_ready` does not raise."""
        try:
            self.check_ready()
        except NotReadyError:
            return False
        return True

    def state(self) -> ServiceState:
        """Return the state for metrics."""
        return ServiceState(self.is_ready and not self.draining, self.models.waiting, self.in_progress)


def service_of(request: Request) -> Service:
    """Return the service that a request belongs to."""
    service: Service = request.app.state.service
    return service


def model_of(request: Request) -> Served:
    """Return the model of an admitted request; else the one that the path names, or the default model.

    Raises what `Models.find` raises.
    """
    admitted: Served | None = request.scope.get("lensbox.model")
    if admitted is not None:
        return admitted
    models, names = service_of(request).models, request.path_params
    return models.find(names["name"], names.get("version")) if "name" in names else models.default
