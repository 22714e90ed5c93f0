"""Services in a thread of the test's process, their error answers, jobs of engines, types of fixtures."""

import asyncio
import contextlib
import functools
import math
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import torch
import uvloop
from waiting import PATIENCE, wait_until

from lensbox.runtime import Photo
from lensbox.serve.cli import listen, read_settings, serve
from lensbox.serve.engine.engines import Engine
from lensbox.serve.engine.instance import Instance
from lensbox.serve.engine.jobs import DetectJob, Loss, LossJob
from lensbox.serve.http.api_keys import read_keys
from lensbox.serve.http.app import create_app
from lensbox.serve.http.server import Server
from lensbox.serve.http.service import Service
from lensbox.serve.loading import load_file
from lensbox.serve.models.served import Models, ModelVersion
from lensbox.serve.observability.metrics import Metrics
from lensbox.serve.settings import Settings

Encode = Callable[..., bytes]


@dataclass
class Running:
    """A service, its client, and what `send` has sent."""

    client: httpx.Client
    service: Service
    _sent: list["Future[httpx.Response]"] = field(default_factory=list)
    _pool: ThreadPoolExecutor = field(default_factory=ThreadPoolExecutor)

    def ready(self) -> "Running":
        """Wait until the model is ready."""
        wait_until(lambda: self.client.get("/readyz").status_code == 200)
        return self

    @property
    def jobs(self) -> int:
        """The number of jobs that have not ended."""
        return self.service.models.all[0].engine.jobs

    def send(self, path: str, **request: Any) -> None:
        """Send a POST request from a thread; do not wait for its answer."""
        self._sent.append(self._pool.submit(self.client.post, path, **request))

    def statuses(self) -> list[int]:
        """Wait for the answers to all requests; return their statuses, sorted."""
        return sorted(response.status_code for response in results(*self._sent))


Start = Callable[..., Running]


def connect(url: httpx.URL | str) -> socket.socket:
    """Return a new TCP connection to a service."""
    url = httpx.URL(url)
    return socket.create_connection((url.host, url.port or 0), timeout=PATIENCE)


def refuses(url: httpx.URL | str) -> bool:
    """Return whether a service refuses connections."""
    try:
        connect(url).close()
    except OSError:
        return True
    return False


@contextlib.contextmanager
def asking(url: str, ask: Callable[[httpx.Client], str], connections: int = 4) -> Iterator[list[str]]:
    """Call `ask` from threads, each with its own client, until the block ends; yield the results so far."""
    found: list[str] = []
    stopped = threading.Event()

    def repeat() -> None:
        with httpx.Client(base_url=url, timeout=PATIENCE, verify=False) as client:
            while not stopped.is_set():
                found.append(ask(client))
                stopped.wait(0.01)  # leaves the services a part of the CPU

    with ThreadPoolExecutor(connections) as pool:
        threads = [pool.submit(repeat) for _ in range(connections)]
        try:
            wait_until(lambda: len(found) > 10)
            yield found
        finally:
            stopped.set()
    results(*threads)


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that was free a moment ago, for a server that cannot choose one."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Problem(NamedTuple):
    status: int
    code: str
    message: str


def problem_of(response: httpx.Response) -> Problem:
    """Check that an answer is a problem document of RFC 9457; return what it says."""
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert list(document) == ["type", "title", "status", "detail", "code"]
    assert (document["type"], document["status"]) == ("about:blank", response.status_code)
    assert document["title"] == HTTPStatus(response.status_code).phrase
    return Problem(response.status_code, document["code"], document["detail"])


@contextlib.contextmanager
def client_of(artifact: Path) -> Iterator[httpx.Client]:
    """Run a service over an artifact with small limits; yield a client of it."""
    limits: Any = {"max_body_mb": 2, "max_json_bytes": 1 << 20, "max_pixels": 1_000_000}
    settings = Settings(artifact=artifact, device="cpu", max_boxes=100, **limits)
    with running(partial(load_file, settings), settings) as service:
        yield service.ready().client


@contextlib.contextmanager
def running(load: Callable[[], Any], settings: Settings) -> Iterator[Running]:
    """Run a service in a thread of this process."""
    metrics = Metrics()
    models = Models(ModelVersion(Instance(load, settings, metrics)))
    service = Service(settings, models, read_keys(settings), metrics)
    listener = listen("127.0.0.1", 0)
    url = settings.url_of(listener)
    server = Server(create_app(service), settings)
    listener.setblocking(False)
    thread = threading.Thread(target=lambda: uvloop.run(server.serve(listener)))
    thread.start()

    try:
        with httpx.Client(base_url=url, timeout=PATIENCE, verify=False) as client:
            client.get("/healthz")  # an answer means that the app runs
            yield Running(client, service)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


def settings_of(arguments: list[str]) -> Settings:
    """Return the settings that `lensbox serve` reads from arguments. Raises click's errors."""
    parameters: dict[str, Any] = dict(serve.make_context("serve", list(arguments)).params)
    return read_settings(parameters)


# --- engines over a fake artifact ---

Make = Callable[..., Instance]
Begin = Callable[..., "Future[Any]"]

LOSS = LossJob(torch.zeros(2, 4), torch.zeros(2, 4), False)
ANSWER = Loss(0.25, None)


def photo_job(*shape: int) -> DetectJob:
    """Return a job with a black photograph."""
    return DetectJob((None, None), Photo.of(torch.zeros(shape or (1, 2, 3), dtype=torch.uint8)))


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def submit(engine: Engine, job: Any, deadline: float = math.inf) -> "Future[Any]":
    """Submit a job from an event loop; return a future of its result or exception."""
    return asyncio.run_coroutine_threadsafe(engine.submit(job, deadline), _loop())


def results(*futures: "Future[Any]") -> list[Any]:
    """Wait for the results of futures."""
    return [future.result(PATIENCE) for future in futures]
