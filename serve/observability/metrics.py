"""The numbers of one service, for Prometheus."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

# From a millisecond, as small batches on a GPU take, to the half minute after which answers are given up.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_IMAGES = tuple(1 << exponent for exponent in range(10))


class ServiceState(NamedTuple):
    """How a service stands at a moment.

    waiting: jobs in the queue; in_progress: requests with a body; device: None until the model is loaded.
    """

    ready: bool
    waiting: int
    in_progress: int
    device: torch.device | None


class Metrics:
    """What is counted as it happens. Any thread may report; each service has a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
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
            "What answering takes: decode, of one image; queue, until a batch takes a job; "
            "inference, of one batch, letterbox included",
            ["stage"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._batch_images = Histogram(
            "lensbox_batch_images", "Images that were computed together", buckets=_IMAGES, registry=registry
        )
        self._restarts = Counter(
            "lensbox_restarts",
            "Processes of the service that were started again",
            registry=registry,
        )
        for stage in ("decode", "queue", "inference"):  # so that they are there from the start
            self._stage_seconds.labels(stage)

    def request_answered(self, route: str, status: int, seconds: float) -> None:
        """route: the path of an endpoint as it is declared; the paths of clients would be without number."""
        self._requests.labels(route, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def image_decoded(self, seconds: float) -> None:
        """Whether it worked or not."""
        self._stage_seconds.labels("decode").observe(seconds)

    def batch_computed(self, images: int, seconds: float, waited: Iterable[float]) -> None:
        """seconds: of the batch, from its beginning; waited: of each of its jobs until then."""
        self._batch_images.observe(images)
        self._stage_seconds.labels("inference").observe(seconds)
        for wait in waited:
            self._stage_seconds.labels("queue").observe(wait)

    def process_restarted(self) -> None:
        self._restarts.inc()

    def watch(self, state: Callable[[], ServiceState]) -> None:
        """Adds what is looked up whenever somebody asks."""
        self.registry.register(_StateCollector(state))


class _StateCollector(Collector):
    def __init__(self, state: Callable[[], ServiceState]) -> None:
        self._state = state

    def describe(self) -> Iterable[Metric]:
        return []  # else the registry would ask for the state at once

    def collect(self) -> Iterable[Metric]:
        state = self._state()
        yield GaugeMetricFamily("lensbox_ready", "Whether /readyz says yes", value=state.ready)
        yield GaugeMetricFamily("lensbox_queue_jobs", "Jobs that wait for the model", value=state.waiting)
        yield GaugeMetricFamily(
            "lensbox_requests_in_progress",
            "Requests with a body, from its first byte on",
            value=state.in_progress,
        )
        memory = GaugeMetricFamily(
            "lensbox_device_memory_bytes",
            "Memory of the GPU: allocated by tensors, and reserved by this process; none on a CPU",
            labels=["device", "kind"],
        )
        if state.device is not None and state.device.type == "cuda":
            memory.add_metric([str(state.device), "allocated"], torch.cuda.memory_allocated(state.device))
            memory.add_metric([str(state.device), "reserved"], torch.cuda.memory_reserved(state.device))
        yield memory
