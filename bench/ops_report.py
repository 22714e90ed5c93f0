"""What a run says: text for the terminal, and results.md for the documentation."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lensbox.bench import exercise, figures
from lensbox.bench.exercise import Point
from lensbox.bench.results import Row
from lensbox.bench.table import case_table, format_markdown, format_text, useful_megabytes

Environment = Sequence[tuple[str, str]]  # names and values


@dataclass
class Report:
    """All that a run has found so far.

    environment: names and values.
    rows: of all cases.
    points: of the exercise.
    notes: what was not run, and why.
    """

    environment: list[tuple[str, str]]
    rows: list[Row] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def case_text(rows: Sequence[Row]) -> str:
    """The table of one case."""
    header, lines, notes = case_table(rows)
    parts = [_title(rows)]
    parts += [format_text(header, lines)] if lines else []
    parts += [f"  - {note}" for note in notes]
    return "\n".join(parts)


def environment_text(environment: Environment) -> str:
    return "\n".join(f"{name + ':':<16}{value}" for name, value in environment)


def environment_markdown(environment: Environment) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in environment)


def figures_text(report: Report) -> str:
    return format_text(figures.HEADER, figures.figure_lines(report.rows))


def exercise_text(points: Sequence[Point]) -> str:
    return format_text(exercise.HEADER, exercise.point_lines(points))


def markdown(report: Report) -> str:
    """The whole run, to be pasted into documentation."""
    parts = [environment_markdown(report.environment)]
    parts += ["## Figures", format_markdown(figures.HEADER, figures.figure_lines(report.rows))]
    parts += ["## Cases", "Median (20th-80th percentile); x: times of Lensbox's figure."]
    for rows in by_case(report.rows):
        header, lines, notes = case_table(rows)
        parts.append(f"### {_title(rows)}")
        parts += [format_markdown(header, lines)] if lines else []
        parts += ["\n".join(f"- {note}" for note in notes)] if notes else []
    if report.points:
        parts += ["## Skipping padding as the work of a slot grows"]
        parts.append(format_markdown(exercise.HEADER, exercise.point_lines(report.points)))
    if report.notes:
        parts += ["## Not run", "\n".join(f"- {note}" for note in report.notes)]
    return "\n\n".join(parts) + "\n"


def by_case(rows: Sequence[Row]) -> list[list[Row]]:
    cases = dict.fromkeys(row.case for row in rows)
    return [[row for row in rows if row.case == case] for case in cases]


def _title(rows: Sequence[Row]) -> str:
    megabytes = useful_megabytes(rows)
    return rows[0].case.title + (f" ({megabytes})" if megabytes else "")
