"""What all requests of one app share."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from fastapi import Request

from lensbox.serve.inference import Instance, OverloadError
from lensbox.serve.settings import Settings


@dataclass
class Service:
    """settings, the model's instance, the threads that decode, and the number of requests with a body."""

    settings: Settings
    instance: Instance
    decoders: ThreadPoolExecutor
    in_progress: int = 0

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Counts a request in; raises OverloadError at the limit. For the event loop's thread alone."""
        if self.in_progress >= self.settings.max_requests:
            raise OverloadError(f"{self.in_progress} requests are already in progress; try again later")
        self.in_progress += 1
        try:
            yield
        finally:
            self.in_progress -= 1


def service_of(request: Request) -> Service:
    """The service that a request belongs to."""
    service: Service = request.app.state.service
    return service
