"""The figures that the service is judged by."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lensbox.bench.serve.benchmark import Row, ServeReport

_TOLD = {"200", "503", "504"}


class Figure(NamedTuple):
    """What was measured, beside what it must be and is to be; `is_most`: the smaller the better."""

    name: str
    value: float
    must: float
    aim: float
    is_most: bool = False

    def __str__(self) -> str:
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
    rows = {row.name.partition(",")[2].partition(",")[0].strip(): row for row in report.rows if _is_ours(row)}
    best_peer = max((row.rate for row in report.rows if not _is_ours(row)), default=0.0)
    saturated, single = rows.get("64 connections"), rows.get("1 connection")
    overloaded, canvases = rows.get("open loop"), rows.get("32 canvases by v2")
    on_gpu = device != "cpu"
    best = max((rate for name, rate in report.rates.items() if name.startswith("files")), default=0.0)
    if saturated and best_peer:
        bounds = (3, 8) if on_gpu else (1.3, 2)
        found.append(Figure("ours / LitServe's best", saturated.rate / best_peer, *bounds))
    if saturated and best and not on_gpu:
        found.append(
            Figure("images/s by HTTP / in process at its best batch", saturated.rate / best, 0.8, 0.92)
        )
    if canvases and on_gpu and report.rates.get("canvases"):
        found.append(
            Figure("canvases by v2 / in process", canvases.rate / report.rates["canvases"], 0.4, 0.7)
        )
    if single and "one photograph in process" in report.numbers:
        value = single.percentile(0.5) / report.numbers["one photograph in process"]
        found.append(Figure("p50 of one connection / in process", value, 1.5, 1.2, True))
    if overloaded and saturated:
        other = sum(count for status, count in overloaded.answers.statuses.items() if status not in _TOLD)
        found.append(Figure("at 4 x the load: statuses other than 200, 503, 504", other, 0, 0, True))
        found.append(Figure("... answered / at saturation", overloaded.rate / saturated.rate, 0.9, 0.97))
        late = overloaded.percentile(0.99) / report.numbers["deadline"]
        found.append(Figure("... p99 / deadline", late, 1, 0.5, True))
    if "memory" in report.numbers:
        found.append(
            Figure("memory after many requests / before", report.numbers["memory"], 1.05, 1.02, True)
        )
    if "recovery" in report.numbers:
        found.append(Figure("seconds until answers flow again", report.numbers["recovery"], 5, 2, True))
    return found


def _is_ours(row: Row) -> bool:
    return row.name.startswith("lensbox")
