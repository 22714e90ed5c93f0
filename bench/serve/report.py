"""What `lensbox bench serve` has measured."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from lensbox.bench.serve.load import Answers


@dataclass
class Row:
    """One load of one service.

    images: of each request. cpu: seconds that the service's processes used for all answers, counted or not,
    beside those of `answers` that those used who sent.
    """

    name: str
    answers: Answers
    images: int = 1
    cpu: float | None = None

    @property
    def rate(self) -> float:
        """Images a second that were answered with 200."""
        return self.images * len(self.answers.seconds) / self.answers.duration

    def percentile(self, share: float) -> float:
        """Seconds within which that share of the answers came; NaN without answers."""
        ordered = sorted(self.answers.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")

    def __str__(self) -> str:
        times = " ".join(f"p{share:g} {1000 * self.percentile(share / 100):.1f}" for share in (50, 90, 99))
        cpu = ""
        if self.cpu is not None and self.answers.total:
            sent, served = (1000 * cpu / self.answers.total for cpu in (self.answers.cpu, self.cpu))
            cpu = f", {sent:.2f} ms of CPU time to send and {served:.2f} ms of CPU time a request"
        return f"{self.name}: {self.rate:.1f} images/s, {times} ms{cpu}, statuses {self.answers.statuses}"


@dataclass
class Pair:
    """The same work over HTTP and in process, done in turns, so that what else the machine does meets both.

    Each turn has a value of each; the quotient of a figure is the median of those of the turns.
    """

    service: list[float] = field(default_factory=list)
    in_process: list[float] = field(default_factory=list)

    @property
    def quotient(self) -> float:
        """That of the service's to the other, by turns."""
        return statistics.median(
            ours / other for ours, other in zip(self.service, self.in_process, strict=True)
        )


@dataclass
class ServeReport:
    """What there is so far; None and empty: not measured.

    throughput, canvases: images a second; latency: seconds of one request. saturated, overloaded: rows;
    peers: those of LitServe. deadline: seconds of the overload's requests. memory: after many requests, over
    that after some. recovery: seconds from the end of an engine to the next answer.
    """

    throughput: Pair | None = None
    latency: Pair | None = None
    canvases: Pair | None = None
    saturated: Row | None = None
    overloaded: Row | None = None
    deadline: float = 0.0
    memory: float | None = None
    recovery: float | None = None
    peers: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
