"""What was measured of each row, and the CSV file that holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from lensbox.bench.article.published import Published
from lensbox.bench.article.step import PHASES
from lensbox.bench.article.subject import Scale
from lensbox.bench.ops_report import Environment
from lensbox.bench.results import write_records
from lensbox.bench.timing import MICROSECONDS, Summary

WHOLE_STEP = "whole step"


@dataclass(frozen=True)
class RowResult:
    """Of one row, in microseconds.

    phases: by name, with a wait after each.
    step: the whole training step without a wait in between; None where there is no gradient.
    note: why there is nothing, or "".
    """

    row: str
    published: Published | None
    phases: Mapping[str, Summary] = field(default_factory=dict)
    step: Summary | None = None
    note: str = ""


@dataclass
class ArticleReport:
    """notes: what was done otherwise than in the article, or not at all, and why.
    gpu_bytes: the most memory of the GPU that was in use at a time; None without one.
    """

    environment: Environment
    scale: Scale
    rows: list[RowResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    gpu_bytes: int | None = None

    def images_per_second(self, result: RowResult) -> float | None:
        """Of the whole training step; None where it was not measured."""
        return None if result.step is None else self.scale.batch / (result.step.median / MICROSECONDS)


@dataclass(frozen=True)
class Record:
    """A row of article.csv: one phase, or the whole step. Empty where there is no figure."""

    row: str
    phase: str
    batch: int
    median_ms: str
    p20_ms: str
    p80_ms: str
    samples: int
    images_per_second: str
    published_ms: str
    note: str


def write_article_csv(path: Path, report: ArticleReport) -> None:
    columns = [column.name for column in fields(Record)]
    records = [record for result in report.rows for record in _records(report, result)]
    write_records(path, columns, records)


def _records(report: ArticleReport, result: RowResult) -> list[Record]:
    if not result.phases:
        return [_record(report, result, phase="")]
    phases = [_record(report, result, phase) for phase in PHASES if phase in result.phases]
    return phases if result.step is None else [*phases, _record(report, result, WHOLE_STEP)]


def _record(report: ArticleReport, result: RowResult, phase: str) -> Record:
    summary = result.step if phase == WHOLE_STEP else result.phases.get(phase)
    published = result.published.of(phase) if result.published is not None else None
    speed = report.images_per_second(result) if phase == WHOLE_STEP else None
    return Record(
        row=result.row,
        phase=phase,
        batch=report.scale.batch,
        median_ms=_milliseconds(summary.median) if summary else "",
        p20_ms=_milliseconds(summary.p20) if summary else "",
        p80_ms=_milliseconds(summary.p80) if summary else "",
        samples=summary.samples if summary else 0,
        images_per_second="" if speed is None else f"{speed:.4g}",
        published_ms="" if published is None else f"{published:g}",
        note=result.note,
    )


def _milliseconds(microseconds: float) -> str:
    return f"{microseconds / 1e3:.4g}"
