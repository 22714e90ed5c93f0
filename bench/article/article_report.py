"""What a run of `lensbox bench article` says: text for the terminal, article.md for the docs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lensbox.bench.article.published import WHERE
from lensbox.bench.article.results import ArticleReport, RowResult
from lensbox.bench.article.rows import LENSBOX
from lensbox.bench.article.step import COPY, FORWARD, LOSS, PHASES
from lensbox.bench.ops_report import environment_markdown, environment_text
from lensbox.bench.table import format_markdown, format_text, number, spread
from lensbox.bench.timing import Summary

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
Format = Callable[[Sequence[str], Sequence[Sequence[str]]], str]

_PUBLISHED = (COPY, FORWARD, LOSS)


def beginning(report: ArticleReport) -> str:
    """What is said before the figures are there."""
    return "\n".join([environment_text(report.environment), f"{'scale:':<16}{report.scale}", *report.notes])


def text(report: ArticleReport) -> str:
    """All figures, for the terminal."""
    return "\n\n".join(_sections(report, format_text, "{}"))


def markdown(report: ArticleReport) -> str:
    """The whole run, to be pasted into documentation."""
    environment = f"{environment_markdown(report.environment)}\n- scale: {report.scale}"
    parts = [environment, *_sections(report, format_markdown, "## {}\n")]
    return "\n\n".join(parts + report.notes) + "\n"


def _sections(report: ArticleReport, table: Format, heading: str) -> list[str]:
    phases = f"Phases, ms: median (20th-80th percentile); the article's own: {WHERE}"
    parts = [f"{heading.format(phases)}\n{table(*phase_table(report))}"]
    notes = [f"- {result.row}: {result.note}" for result in report.rows if result.note]
    parts += ["\n".join(notes)] if notes else []
    whole = "The whole training step, without a wait between phases"
    parts.append(f"{heading.format(whole)}\n{table(*step_table(report))}")
    if report.gpu_bytes is not None:
        parts.append(f"At most {report.gpu_bytes / 1e9:.1f} GB of the GPU's memory were in use.")
    return parts


def phase_table(report: ArticleReport) -> Table:
    """A line a row that ran; the article's figures beside it."""
    lines = [
        [
            result.row,
            *(_spread(result.phases.get(phase)) for phase in PHASES),
            *(_published(result, phase) for phase in _PUBLISHED),
        ]
        for result in report.rows
        if result.phases
    ]
    return ["row", *PHASES, *(f"article's {phase}" for phase in _PUBLISHED)], lines


def step_table(report: ArticleReport) -> Table:
    """Time of a step, images a second, and the latter as times of Lensbox's; rows with a gradient."""
    speeds = {result.row: report.images_per_second(result) for result in report.rows}
    ours = speeds.get(LENSBOX)
    lines = []
    for result in report.rows:
        speed = speeds[result.row]
        if speed is not None:
            times = "" if ours is None else number(ours / speed)
            lines.append([result.row, _spread(result.step), number(speed), times])
    return ["row", "step, ms", "images/s", f"{LENSBOX}: times as many"], lines


def _spread(summary: Summary | None) -> str:
    if summary is None:
        return ""
    return spread(Summary(summary.median / 1e3, summary.p20 / 1e3, summary.p80 / 1e3, summary.samples))


def _published(result: RowResult, phase: str) -> str:
    figure = result.published.of(phase) if result.published is not None else None
    return "" if figure is None else f"{figure:g}"
