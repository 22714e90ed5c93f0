"""Prometheus metrics of the service.

The processes keep them in files of one folder (prometheus_client's multiprocess mode), and any front end
answers with the sums; a replica of Ray keeps them in memory. Each process has a slot, a stable name: a
restarted process continues the files of its predecessor, so restarts do not add files.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    values,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from lensbox.serve.folders import service_folder

if TYPE_CHECKING:
    import torch

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's variable
_SAMPLING_INTERVAL = 1.0  # seconds

# From 1 ms (a small batch on a GPU) to 30 s (the default time limit of a request).
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_IMAGES = tuple(1 << exponent for exponent in range(10))
_DEFAULTS: dict[Any, dict[str, Any]] = {
    Gauge: {"multiprocess_mode": "livesum"},
    Histogram: {"buckets": _SECONDS},
}

State = tuple[bool, dict[str, tuple[int, int]]]
"""Whether /readyz answers 200; by model, the numbers of unfinished jobs and of admitted requests."""

_shared_folder: str | None = None


@contextmanager
def shared_metrics(slot: str) -> Iterator[str]:
    """Create the folder of the service's metrics, and join it. Enter it before starting the first process.

    An inherited PROMETHEUS_MULTIPROC_DIR is ignored: the folder may belong to another program. Files in
    memory (tmpfs) go on while a disk is full.
    """
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
    with service_folder(place) as path:
        os.environ[_FOLDER] = path
        join_shared_metrics(slot)
        yield path


def join_shared_metrics(slot: str) -> None:
    """Keep the metrics of this process in the shared folder. Call it before the first metric is made.

    slot: unique among running processes, without "_".
    """
    global _shared_folder
    _shared_folder = os.environ[_FOLDER]
    values.ValueClass = values.MultiProcessValue(lambda: slot)


def _metric(registry: CollectorRegistry, kind: Any, name: str, text: str, *labels: str, **more: Any) -> Any:
    """Make a metric whose name begins with "lensbox_"."""
    return kind(f"lensbox_{name}", text, labels, registry=registry, **_DEFAULTS.get(kind, {}) | more)


class ServiceCounters:
    """The metrics of the supervisor: restarts, loads, the versions that serve."""

    def __init__(self) -> None:
        make = partial(_metric, CollectorRegistry())
        self._restarts = make(Counter, "restarts", "Restarts of processes of the service", "model")
        self._loads = make(Counter, "model_loads", "Loads of models, by outcome", "model", "outcome")
        self._serving = make(Gauge, "model_info", "1 for each version that serves", "model", "model_version")
        self._served: set[tuple[str, str]] = set()

    def process_ended(self, slot: str, model: str = "") -> None:
        """Count a restart. Keep the counters of the slot, drop the gauges of its last process."""
        self.forget(slot)
        self._restarts.labels(model).inc()

    def forget(self, slot: str) -> None:
        """Drop the gauges of a process that has ended."""
        mark_process_dead(slot)

    def load_ended(self, model: str, outcome: str) -> None:
        """Count a load. outcome: loaded, or failed."""
        self._loads.labels(model, outcome).inc()

    def serve(self, versions: Iterable[tuple[str, str]]) -> None:
        """Note which versions of which models serve."""
        now = set(versions)
        for one in self._served | now:
            self._serving.labels(*one).set(one in now)
        self._served |= now


class Metrics:
    """The metrics of one app. Any thread may report.

    model: the name of the engine's model; set it before the first batch.
    """

    def __init__(self) -> None:
        self.model = ""
        self._registry = CollectorRegistry()
        self._make = make = partial(_metric, self._registry)
        if _shared_folder is None:
            values.ValueClass = values.MutexValue  # ignore the environment variable
            for collector in (ProcessCollector, PlatformCollector, GCCollector):
                collector(registry=self._registry)
        labels = "route", "status", "model", "model_version"
        self._requests = make(Counter, "requests", "Requests that were answered", *labels)
        text = "Time from the head of a request to the end of its answer"
        self._request_seconds = make(Histogram, "request_seconds", text, "route", "model")
        self._labelled = lru_cache(self._label)
        text = "Time of a stage; see docs/service.md"
        self._stage_seconds = make(Histogram, "stage_seconds", text, "stage", "model")
        self._batch_images = make(Histogram, "batch_images", "Images per batch", "model", buckets=_IMAGES)
        make(Counter, "restarts", "Restarts of processes of the service", "model").labels("")
        text = "GPU memory: allocated by tensors, and reserved by the process; absent on a CPU"
        self._device_memory = make(Gauge, "device_memory_bytes", text, "model", "device", "kind")
        build = make(Gauge, "build_info", "Versions; always 1", "version", "torch", multiprocess_mode="max")
        build.labels(version("lensbox"), version("torch")).set(1)
        self._samplers: list[Callable[[], None]] = []

    def request_answered(
        self, route: str, status: int, seconds: float, model: str = "", version: str = ""
    ) -> None:
        """Count a request. route: the endpoint's path as declared, to bound the number of labels."""
        answered, took = self._labelled(route, status, model, version)
        answered.inc()
        took.observe(seconds)

    def _label(self, route: str, status: int, model: str, version: str) -> tuple[Counter, Histogram]:
        requests = self._requests.labels(route, str(status), model, version)
        return requests, self._request_seconds.labels(route, model)

    def image_decoded(self, seconds: float, model: str) -> None:
        """Observe the decoding of an image, successful or not."""
        self._stage_seconds.labels("decode", model).observe(seconds)

    def batch_computed(self, images: int, seconds: float, waited: Iterable[float]) -> None:
        """Observe a batch. seconds: duration. waited: time in the queue of each job."""
        self._batch_images.labels(self.model).observe(images)
        self._stage_seconds.labels("inference", self.model).observe(seconds)
        queue = self._stage_seconds.labels("queue", self.model)
        for wait in waited:
            queue.observe(wait)

    def watch(self, state: Callable[[], "State"]) -> None:
        """Sample the state of the service at each scrape; with several processes, every second.

        Call it once, in processes that answer requests.
        """
        text = "Admitted requests that are not answered"
        ready = self._make(Gauge, "ready", "1 if /readyz answers 200, else 0", multiprocess_mode="livemin")
        jobs = self._make(Gauge, "queue_jobs", "Jobs that wait for the model or run", "model")
        requests = self._make(Gauge, "requests_in_progress", text, "model")
        seen: set[str] = set()

        def sample() -> None:
            is_ready, models = state()
            ready.set(is_ready)
            seen.update(models)
            for model in seen:
                for gauge, value in zip((jobs, requests), models.get(model, (0, 0)), strict=True):
                    gauge.labels(model).set(value)

        self._sample_by(sample)

    def watch_device(self, device: "torch.device") -> None:
        """Sample the memory of the model's device, as `watch` does."""
        if device.type != "cuda":
            return
        import torch

        def sample() -> None:
            for kind in ("allocated", "reserved"):
                count = getattr(torch.cuda, f"memory_{kind}")(device)
                self._device_memory.labels(self.model, str(device), kind).set(count)

        self._sample_by(sample)

    def exposed(self) -> CollectorRegistry:
        """Return the current metrics of all processes. Reads files: do not call it in an event loop."""
        for sample in self._samplers:
            sample()
        if _shared_folder is None:
            return self._registry
        registry = CollectorRegistry()
        MultiProcessCollector(registry, _shared_folder)
        return registry

    def _sample_by(self, sample: Callable[[], None]) -> None:
        def repeat() -> None:
            while True:
                time.sleep(_SAMPLING_INTERVAL)
                sample()

        self._samplers.append(sample)
        if _shared_folder is not None:  # any front end may answer a scrape for this process
            sample()
            threading.Thread(target=repeat, name="lensbox-metrics", daemon=True).start()
