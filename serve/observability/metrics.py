"""The numbers of one service, for Prometheus.

A service of one process keeps them in memory. Processes that share a service find the folder SHARED_FOLDER in
their environment, where each keeps its own in files, and whichever is asked gives the sums of all.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.multiprocess import MultiProcessCollector

from lensbox.serve.observability.shared_metrics import SHARED_FOLDER

_SAMPLING_INTERVAL = 1.0  # seconds, where another process may be the one that is asked

# From a millisecond, as small batches on a GPU take, to the half minute after which answers are given up.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_IMAGES = tuple(1 << exponent for exponent in range(10))


class ServiceState(NamedTuple):
    """How a service stands at a moment.

    waiting: jobs in the queue; in_progress: requests with a body.
    """

    ready: bool
    waiting: int
    in_progress: int


class Metrics:
    """What is counted as it happens. Any thread may report; the apps of a process do not share."""

    def __init__(self) -> None:
        self._shared = SHARED_FOLDER in os.environ
        self._registry = registry = CollectorRegistry()
        if not self._shared:  # of several processes, which one would they tell of?
            for collector in (ProcessCollector, PlatformCollector, GCCollector):
                collector(registry=registry)
        self._requests = Counter(
            "lensbox_requests", "Requests that were answered", ["route", "status"], registry=registry
        )
        self._request_seconds = Histogram(
            "lensbox_request_seconds",
            "From the head of a request to the end of its answer",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._stage_seconds = Histogram(
            "lensbox_stage_seconds",
            "What answering takes: decode, of one image; queue, until a batch takes a job; letterbox, of one "
            "batch of photographs; inference, of one batch, without it",
            ["stage"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._batch_images = Histogram(
            "lensbox_batch_images", "Images that were computed together", buckets=_IMAGES, registry=registry
        )
        self._closed_connections = Counter(
            "lensbox_connections_closed",
            "Connections that were closed for a limit: on their number, on that of one client, on the time "
            "for a request's head, or for taking an answer",
            ["reason"],
            registry=registry,
        )
        Counter(  # of which `shared_metrics` keeps the count
            "lensbox_restarts",
            "Processes of the service that were started again",
            registry=registry,
        )
        self._device_memory = Gauge(
            "lensbox_device_memory_bytes",
            "Memory of the GPU: allocated by tensors, and reserved by the process; none on a CPU",
            ["device", "kind"],
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._samplers: list[Callable[[], None]] = []
        for stage in ("decode", "queue", "letterbox", "inference"):  # so that they are there from the start
            self._stage_seconds.labels(stage)
        for reason in ("crowded", "client_limit", "slow_request", "slow_reader"):
            self._closed_connections.labels(reason)

    def request_answered(self, route: str, status: int, seconds: float) -> None:
        """route: the path of an endpoint as it is declared; the paths of clients would be without number."""
        self._requests.labels(route, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def image_decoded(self, seconds: float) -> None:
        """Whether it worked or not."""
        self._stage_seconds.labels("decode").observe(seconds)

    def batch_computed(
        self, images: int, seconds: float, waited: Iterable[float], letterbox: float = 0.0
    ) -> None:
        """seconds: of the batch, from its beginning; waited: of each of its jobs until then; letterbox: those
        of `seconds` that pre-processing took, 0 for a batch without it."""
        self._batch_images.observe(images)
        if letterbox:
            self._stage_seconds.labels("letterbox").observe(letterbox)
        self._stage_seconds.labels("inference").observe(max(0.0, seconds - letterbox))
        for wait in waited:
            self._stage_seconds.labels("queue").observe(wait)

    def connection_closed(self, reason: str) -> None:
        """As `connection_class` reports it."""
        self._closed_connections.labels(reason).inc()

    def watch(self, state: Callable[[], ServiceState]) -> None:
        """Looks up how the service stands whenever somebody asks; of several processes, every second.

        Once, and where there are other processes, in those that answer requests.
        """
        ready = Gauge(
            "lensbox_ready", "Whether /readyz says yes", registry=self._registry, multiprocess_mode="livemin"
        )
        queue_jobs = Gauge(
            "lensbox_queue_jobs",
            "Jobs that wait for the model",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        in_progress = Gauge(
            "lensbox_requests_in_progress",
            "Requests with a body that has begun",
            registry=self._registry,
            multiprocess_mode="livesum",
        )

        def sample() -> None:
            now = state()
            ready.set(now.ready)
            queue_jobs.set(now.waiting)
            in_progress.set(now.in_progress)

        self._sample_by(sample)

    def watch_device(self, device: Callable[[], torch.device | None]) -> None:
        """Looks up the memory of the model's device in the same way, in the process that has the model.

        device: None until the model is loaded.
        """

        def sample() -> None:
            found = device()
            if found is not None and found.type == "cuda":
                for kind, measure in (
                    ("allocated", torch.cuda.memory_allocated),
                    ("reserved", torch.cuda.memory_reserved),
                ):
                    self._device_memory.labels(str(found), kind).set(measure(found))

        self._sample_by(sample)

    def exposed(self) -> CollectorRegistry:
        """What to show: the numbers of now, of all processes that share the service."""
        for sample in self._samplers:
            sample()
        if not self._shared:
            return self._registry
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        return registry

    def _sample_by(self, sample: Callable[[], None]) -> None:
        self._samplers.append(sample)
        if self._shared:
            sample()
            threading.Thread(target=_repeat, args=(sample,), name="lensbox-metrics", daemon=True).start()


def _repeat(sample: Callable[[], None]) -> None:
    while True:
        time.sleep(_SAMPLING_INTERVAL)
        sample()
