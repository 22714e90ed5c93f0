"""The answers of a service to loads, and the figures that follow from them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from lensbox.bench.report import Figure, number
from lensbox.bench.serve.load import Answers

LOAD_HEADER = (*("load", "images/s", "p50, ms", "p90, ms", "p99, ms", "CPU ms a request", "statuses"),)
_EXPECTED = {"200", "429", "503", "504", "unsent"}

Limits = tuple[float | None, float | None]
_NOTHING: Limits = (None, None)


@dataclass
class Loaded:
    """One load of one service.

    images: of each request. cpu: seconds of CPU time of the service's processes for all answers.
    """

    name: str
    answers: Answers
    images: int = 1
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        """Return the images per second that were answered with 200."""
        return self.images * len(self.answers.seconds) / self.answers.duration

    def percentile(self, share: float) -> float:
        """Return the seconds within which that share of the answers came; NaN without answers."""
        ordered = sorted(self.answers.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")

    def cells(self) -> list[str]:
        """Return a line of the table of loads, below LOAD_HEADER."""
        times = [f"{1000 * self.percentile(share):.1f}" for share in (0.5, 0.9, 0.99)]
        total = self.answers.total
        cpu = f"{1000 * self.cpu / total:.2f}" if total else ""
        statuses = ", ".join(f"{status}: {count}" for status, count in sorted(self.answers.statuses.items()))
        return [self.name, number(self.rate), *times, cpu, statuses]


@dataclass
class Pair:
    """The same work over HTTP and in process, done in turns; a value of each per turn."""

    service: list[float] = field(default_factory=list)
    in_process: list[float] = field(default_factory=list)

    def add(self, service: float, in_process: float) -> None:
        self.service.append(service)
        self.in_process.append(in_process)

    @property
    def quotient(self) -> float:
        """Return the median over the turns of the service's value divided by the other."""
        turns = zip(self.service, self.in_process, strict=True)
        return statistics.median(service / other for service, other in turns)


@dataclass
class Measured:
    """The measurements so far; None and empty: not measured.

    throughput, canvases: images per second. latency: seconds of one request. litserve: its loads. deadline:
    seconds of the overload's requests. memory: after many requests, over that after 1,000.
    """

    throughput: Pair | None = None
    latency: Pair | None = None
    canvases: Pair | None = None
    saturated: Loaded | None = None
    overloaded: Loaded | None = None
    deadline: float = 0.0
    memory: float | None = None
    litserve: list[Loaded] = field(default_factory=list)


def figures(measured: Measured, device: str) -> list[Figure]:
    """Return the figures for which there are measurements, with the limits of the device."""
    found: list[Figure] = []
    on_gpu = device != "cpu"

    def add(name: str, value: float, gpu: Limits, cpu: Limits, at_most: bool = False) -> None:
        found.append(Figure(name, value, *(gpu if on_gpu else cpu), at_most))

    saturated, overloaded = measured.saturated, measured.overloaded
    best = max((peer.rate for peer in measured.litserve), default=0.0)
    if saturated and best:
        add("ours / LitServe's best", saturated.rate / best, (6, 8), (1.3, 2))
    if measured.throughput:
        name = "images/s by HTTP / in process at its best batch"
        add(name, measured.throughput.quotient, _NOTHING, (0.8, 0.92))
    if measured.canvases:
        add("canvases by v2 / in process", measured.canvases.quotient, (0.4, 0.7), _NOTHING)
    if measured.latency:
        name = "p50 of one connection / in process"
        add(name, measured.latency.quotient, (1.4, 1.25), _NOTHING, at_most=True)
    if overloaded and saturated:
        other = sum(count for status, count in overloaded.answers.statuses.items() if status not in _EXPECTED)
        add("at 4 x the load: statuses other than 200, 429, 503, 504", other, (0, 0), (0, 0), at_most=True)
        kept = overloaded.rate / saturated.rate
        add("... answered / at saturation", kept, (0.9, 0.97), (0.85, 0.97))
        late = overloaded.percentile(0.99) / measured.deadline
        add("... p99 / deadline", late, (1, 0.5), (1, 0.5), at_most=True)
    if measured.memory is not None:
        limits = 1.05, 1.02
        add("memory after many requests / after 1,000", measured.memory, limits, limits, at_most=True)
    return found
