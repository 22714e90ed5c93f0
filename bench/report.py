"""The report of a run: rows as CSV and tables, figures with their limits, written as the run goes."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lensbox.bench.machine import Environment, describe_machine
from lensbox.bench.runner import Row
from lensbox.bench.timing import MICROSECONDS, Summary
from lensbox.common.files import atomic_write
from lensbox.common.machine import keep_freed_memory

Cells = Sequence[Sequence[str]]

COLUMNS = (
    *("case", "way", "measure", "median_us", "p20_us", "p80_us", "samples", "images_per_second"),
    *("useful_bytes", "copy_bandwidth_share", "note"),
)


@dataclass(frozen=True)
class Options:
    """The options that all benchmarks share.

    device: "cpu" or "cuda". output: folder for the files, or None. quick: fewer sizes and samples. threads:
    of the CPU. say: called with each text for the terminal.
    """

    device: str
    output: Path | None = None
    quick: bool = False
    threads: int = 1
    say: Callable[[str], None] = print


@dataclass(frozen=True)
class Table:
    """A title, a header and lines of as many cells; notes stand below."""

    title: str
    header: Sequence[str]
    lines: Cells
    notes: Sequence[str] = ()

    def text(self) -> str:
        """Return the table for a terminal: the first column to the left, the others to the right."""
        parts = [self.title]
        if self.lines:
            cells = [list(self.header), *(list(line) for line in self.lines)]
            widths = [max(len(line[column]) for line in cells) for column in range(len(self.header))]
            cells.insert(1, ["-" * width for width in widths])
            for first, *others in cells:
                padded = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
                parts.append("  ".join([first.ljust(widths[0]), *padded]).rstrip())
        return "\n".join(parts + [f"  - {note}" for note in self.notes])

    def markdown(self) -> str:
        """Return the table for documentation."""
        parts = [f"### {self.title}"]
        if self.lines:
            lines = [self.header, ["---", *["---:"] * (len(self.header) - 1)], *self.lines]
            parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        parts += ["\n".join(f"- {note}" for note in self.notes)] if self.notes else []
        return "\n\n".join(parts)


@dataclass(frozen=True)
class Figure:
    """A value beside a limit that must hold and a goal.

    value: None if it was not measured. must, aim: None if there is no limit. at_most: whether less is better.
    details: further cells, such as the two times of a ratio.
    """

    name: str
    value: float | None
    must: float | None = None
    aim: float | None = None
    at_most: bool = False
    details: Sequence[str] = ()

    @property
    def verdict(self) -> str:
        """Say whether the limits hold; in capitals where `must` does not."""
        if self.value is None:
            return "not measured"
        if self.must is None:
            return ""
        if self.aim is not None and self._holds(self.value, self.aim):
            return "aim reached"
        if self._holds(self.value, self.must):
            return "reached"
        return "ABOVE" if self.at_most else "BELOW"

    @property
    def cells(self) -> list[str]:
        """Return a line of the table of figures."""
        sign = "≤" if self.at_most else "≥"
        limits = ["" if limit is None else f"{sign} {limit:,g}" for limit in (self.must, self.aim)]
        value = "" if self.value is None else number(self.value)
        return [self.name, *self.details, value, *limits, self.verdict]

    def _holds(self, value: float, limit: float) -> bool:
        return value <= limit if self.at_most else value >= limit


@dataclass
class Report:
    """Collect and print a run's rows, tables, figures and notes; keep NAME.csv and NAME.md up to date.

    output: folder for the files, or None.
    """

    name: str
    environment: Environment
    say: Callable[[str], None]
    output: Path | None = None
    rows: list[Row] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _tables: dict[str, Table] = field(default_factory=dict)

    @classmethod
    def start(
        cls, name: str, options: Options, packages: Sequence[str], copy_bytes_per_second: float | None = None
    ) -> "Report":
        """Begin a run: describe the machine, with the versions of these packages besides torch."""
        keep_freed_memory()
        machine = describe_machine(options.device, packages, copy_bytes_per_second)
        options.say("\n".join(f"{name + ':':<16}{value}" for name, value in machine))
        return cls(name, machine, options.say, options.output)

    def add(self, rows: Sequence[Row]) -> None:
        """Say the rows of a case, and add them to its table, which may have rows of an earlier call."""
        self.rows += rows
        self.say(case_table(rows).text())
        case = rows[0].case
        self.show(case_table([row for row in self.rows if row.case == case]), aloud=False)

    def show(self, table: Table, aloud: bool = True) -> None:
        """Add a table, in place of an earlier one of the same title."""
        self._tables[table.title] = table
        if aloud:
            self.say(table.text())
        self.write()

    def finish(self, figures: Iterable[Figure], details: Sequence[str] = ()) -> None:
        """Add the figures. details: the header of their further cells."""
        self.figures = list(figures)
        if self.figures:
            header = ["figure", *details, "value", "must", "aim", ""]
            self.show(Table("Figures", header, [figure.cells for figure in self.figures]))
        self.write()
        for note in self.notes:
            self.say(f"Note: {note}")

    @property
    def has_own_defect(self) -> bool:
        """Return whether an answer of Lensbox was wrong or failed."""
        return any(row.is_own_defect for row in self.rows)

    def find(self, case: str, way: str, measure: str) -> Row | None:
        """Return a figure, or None if it was not measured."""
        for row in self.rows:
            if (row.case, row.way, row.measure) == (case, way, measure) and row.summary is not None:
                return row
        return None

    def median(self, case: str, way: str, measure: str) -> float | None:
        """Return the median of a figure in microseconds, or None if it was not measured."""
        row = self.find(case, way, measure)
        return row.summary.median if row is not None and row.summary is not None else None

    def write(self) -> None:
        """Write the files as far as the run has come."""
        if self.output is None:
            return
        if self.rows:
            atomic_write(self.output / f"{self.name}.csv", csv_of(self.rows).encode())
        atomic_write(self.output / f"{self.name}.md", self.markdown().encode())

    def markdown(self) -> str:
        """Return the whole run, to be pasted into documentation. Figures come first."""
        parts = ["\n".join(f"- {name}: {value}" for name, value in self.environment)]
        titles = sorted(self._tables, key=lambda title: title != "Figures")
        parts += [self._tables[title].markdown() for title in titles]
        parts += ["### Not run", "\n".join(f"- {note}" for note in self.notes)] if self.notes else []
        return "\n\n".join(parts) + "\n"


def case_table(rows: Sequence[Row]) -> Table:
    """Return the table of one case: a line per way, `median (p20-p80)` and "x" columns for each measure.

    x: times of the case's first way, by the same measure.
    """
    timed = [row for row in rows if row.summary is not None]
    by_key = {(row.way, row.measure): row for row in timed}
    measures = list(dict.fromkeys(row.measure for row in timed))
    has_images, has_share = any(row.images for row in timed), any(row.share is not None for row in timed)
    header = ["way"]
    for measure in measures:
        header += [f"{measure}, µs", "x"] + ["images/s"] * has_images
    header += ["share of copy"] * has_share
    lines = []
    for way in dict.fromkeys(row.way for row in timed):
        line = [way]
        for measure in measures:
            row, first = by_key.get((way, measure)), by_key.get((rows[0].way, measure))
            line += [spread(row.summary if row else None), _times(row, first)]
            line += [_images_per_second(row)] * has_images
        shares = [row.share for row in timed if row.way == way and row.share is not None]
        line += [f"{shares[-1]:.1%}" if shares else ""] * has_share
        lines.append(line)
    useful = rows[0].useful_bytes or max(row.useful_bytes for row in rows)
    moved = f" ({number(useful / 1e6)} MB to be moved)" if useful else ""
    return Table(rows[0].case + moved, header, lines, _reasons(rows))


def csv_of(rows: Iterable[Row]) -> str:
    """Return one line per row. Times are microseconds; a cell without a figure is empty."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for row in rows:
        times = ["", "", "", 0]
        if row.summary is not None:
            median, p20, p80 = (
                f"{time:.4g}" for time in (row.summary.median, row.summary.p20, row.summary.p80)
            )
            times = [median, p20, p80, row.summary.samples]
        share = "" if row.share is None else f"{row.share:.4g}"
        images = _images_per_second(row).replace(",", "")
        writer.writerow([row.case, row.way, row.measure, *times, images, row.useful_bytes, share, row.note])
    return text.getvalue()


def number(value: float) -> str:
    """Return three significant digits, thousands grouped: 0.712, 4.40, 17.3, 55,800."""
    rounded = float(f"{value:.3g}")
    decimals = 0 if rounded >= 100 else 1 if rounded >= 10 else 2 if rounded >= 1 else 3
    return f"{rounded:,.{decimals}f}"


def spread(summary: Summary | None) -> str:
    """Return `median (p20-p80)`, or nothing where there is no figure."""
    if summary is None:
        return ""
    return f"{number(summary.median)} ({number(summary.p20)}-{number(summary.p80)})"


def _times(row: Row | None, first: Row | None) -> str:
    if row is None or row.summary is None or first is None or first.summary is None:
        return ""
    return number(row.summary.median / first.summary.median)


def _images_per_second(row: Row | None) -> str:
    if row is None or row.summary is None or not row.images:
        return ""
    return number(row.images * MICROSECONDS / row.summary.median)


def _reasons(rows: Sequence[Row]) -> list[str]:
    """Say why figures are missing. Ways with the same reason share a line."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.note:
            reasons.setdefault(row.note, []).append(f"{row.way} ({row.measure})" if row.measure else row.way)
    return [f"{', '.join(ways)}: {reason}" for reason, ways in reasons.items()]
