"""The state that all requests of one app share."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from fastapi import Request

from lensbox.serve.engine.engines import Engine
from lensbox.serve.errors import NotReadyError
from lensbox.serve.http.connections import Connections
from lensbox.serve.observability.metrics import Metrics, ServiceState
from lensbox.serve.requests.decoding import Decoders
from lensbox.serve.requests.futures import Deadline
from lensbox.serve.settings import Settings


class Peers(Protocol):
    """The other front ends of a service. See `processes.heartbeat.Peers`."""

    def beat(self, is_ready: bool) -> None: ...

    def check_ready(self) -> None: ...


@dataclass
class Service:
    """Settings, engine, threads and state of one app.

    peers: the other front ends, or None. in_progress: number of admitted requests. lone: number of admitted
    requests since two overlapped. draining: True once the service is shutting down. inferences: number of
    requests of protocol v2 in this process, by success.
    """

    settings: Settings
    engine: Engine
    decoders: Decoders
    json_parser: ThreadPoolExecutor
    metrics: Metrics
    connections: Connections
    peers: Peers | None = None
    in_progress: int = 0
    lone: int = 1
    draining: bool = False
    inferences: Counter[bool] = field(default_factory=Counter)

    def begin_request(self) -> None:
        """Count an admitted request."""
        self.in_progress += 1
        self.lone = self.lone + 1 if self.in_progress == 1 else 0

    @property
    def is_calm(self) -> bool:
        """True if the latest request and the one before it began with no other request in progress.

        One request is not enough: an engine answers a batch at once, and the first of the next requests then
        finds no other in progress. The engine must not have jobs of other front ends, either.
        """
        return self.lone > 1 and not self.engine.serves_others

    def check_ready(self) -> None:
        """Raise NotReadyError unless the service can take images."""
        self.engine.ready_artifact()
        if self.decoders.stuck:
            raise NotReadyError("all decoding threads are stuck in images that take too long")

    def check_alive(self) -> None:
        """Raise NotReadyError if only a restart of the process can help."""
        if reason := self.engine.lost:
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
        return ServiceState(self.is_ready and not self.draining, self.engine.waiting, self.in_progress)


def service_of(request: Request) -> Service:
    """Return the service that a request belongs to."""
    service: Service = request.app.state.service
    return service


def deadline_of_request(request: Request) -> Deadline:
    """Return the client's deadline, which `Admission` has read from the headers."""
    deadline: Deadline = request.scope["lensbox.deadline"]
    return deadline
