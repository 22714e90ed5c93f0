"""The figures that the service is judged by."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lensbox.bench.serve.report import ServeReport

_TOLD = {"200", "503", "504", "unsent", "late"}  # the last two are no answers, but the sender's own words


class Figure(NamedTuple):
    """What was measured, beside what it must be and is to be; `is_most`: the smaller the better.

    Where nothing is asked of this device, must and aim are None.
    """

    name: str
    value: float
    must: float | None
    aim: float | None
    is_most: bool = False

    def __str__(self) -> str:
        if self.must is None or self.aim is None:
            return f"{self.name}: {self.value:.3g}"
        sign = "<=" if self.is_most else ">="
        verdict = "aim" if self._reaches(self.aim) else "must" if self._reaches(self.must) else "MISSED"
        return (
            f"{self.name}: {self.value:.3g} (must {sign} {self.must:g}, aim {sign} {self.aim:g}): {verdict}"
        )

    def _reaches(self, bound: float) -> bool:
        return self.value <= bound if self.is_most else self.value >= bound


def figures(report: ServeReport, device: str) -> list[Figure]:
    """Those for which there are measurements."""
    found: list[Figure] = []
    on_gpu = device != "cpu"

    def add(name: str, value: float, gpu: Bounds, cpu: Bounds, is_most: bool = False) -> None:
        found.append(Figure(name, value, *(gpu if on_gpu else cpu), is_most))

    saturated, overloaded = report.saturated, report.overloaded
    best = max((row.rate for row in report.peers), default=0.0)
    if saturated and best:
        add("ours / LitServe's best", saturated.rate / best, (3, 8), (1.3, 2))
    if report.throughput:
        name = "images/s by HTTP / in process at its best batch"
        add(name, report.throughput.quotient, _NOTHING, (0.8, 0.92))
    if report.canvases:
        add("canvases by v2 / in process", report.canvases.quotient, (0.4, 0.7), _NOTHING)
    if report.latency:
        name = "p50 of one connection / in process"
        add(name, report.latency.quotient, (1.5, 1.2), _NOTHING, is_most=True)
    if overloaded and saturated:
        other = sum(count for status, count in overloaded.answers.statuses.items() if status not in _TOLD)
        add("at 4 x the load: statuses other than 200, 503, 504", other, (0, 0), (0, 0), is_most=True)
        kept = overloaded.rate / saturated.rate
        add("... answered / at saturation", kept, (0.9, 0.97), (0.9, 0.97))
        late = overloaded.percentile(0.99) / report.deadline
        add("... p99 / deadline", late, (1, 0.5), (1, 0.5), is_most=True)
    if report.memory is not None:
        bounds = 1.05, 1.02
        add("memory after many requests / after 1,000", report.memory, bounds, bounds, is_most=True)
    if report.recovery is not None:
        name = "seconds from the end of an engine to the next answer"
        add(name, report.recovery, _NOTHING, (5, 2), is_most=True)
    return found


Bounds = tuple[float | None, float | None]
_NOTHING: Bounds = (None, None)
