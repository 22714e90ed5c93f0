"""Tables of figures as Markdown, which terminals and pages show alike."""

from collections.abc import Sequence
from dataclasses import dataclass

from lensbox.client.timing import Times


@dataclass(frozen=True)
class Table:
    """A title, a header and lines of as many cells; notes stand below."""

    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """Return the table with its columns aligned: the first one to the left, the others to the right."""
        cells = [list(self.header), *(list(line) for line in self.lines)]
        widths = [max(4, *(len(line[column]) for line in cells)) for column in range(len(self.header))]
        rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
        rows = []
        for first, *others in (cells[0], rule, *cells[1:]):
            padded = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
            rows.append(f"| {' | '.join([first.ljust(widths[0]), *padded])} |")
        notes = ["\n".join(f"- {note}" for note in self.notes)] if self.notes else []
        return "\n\n".join([f"### {self.title}", "\n".join(rows), *notes])


def number(value: float) -> str:
    """Return three significant digits, thousands grouped: 0.712, 4.40, 17.3, 55,800."""
    rounded = float(f"{value:.3g}")
    decimals = 0 if rounded >= 100 else 1 if rounded >= 10 else 2 if rounded >= 1 else 3
    return f"{rounded:,.{decimals}f}"


def spread(times: Times, unit: float = 1.0) -> str:
    """Return `median (p20-p80)`, multiplied by `unit`."""
    return f"{number(times.median * unit)} ({number(times.p20 * unit)}-{number(times.p80 * unit)})"
