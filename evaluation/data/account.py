"""The account of labelled data: what was read, what was left out and why, as one table."""

from __future__ import annotations

import logging
from typing import Any

MISSING = "photographs skipped: no such file"
TWICE = "names given twice"
ROWS = (
    *("photographs found", "photographs used", "photographs without boxes"),
    *("boxes used", "boxes clipped", "boxes to ignore"),
    *("label files without a photograph", "categories without annotations", TWICE),
)

logger = logging.getLogger(__name__)


class Account:
    """Count what was read, by the row of a table, and keep the first place of each row.

    Attributes:
        counts: by row; the rows of `ROWS` come first, then those of what was met.
        first: a line on the first file of a row.
        problems: a line for each thing that was left out.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys(ROWS, 0)
        self.first: dict[str, str] = {}
        self.problems: list[str] = []

    def add(self, row: str, count: int = 1, line: str = "") -> None:
        """Count something, with a line that names its file."""
        self.counts[row] = self.counts.get(row, 0) + count
        if line and count:
            self.first.setdefault(row, line)

    def skip(self, row: str, line: str, count: int = 1, photographs: int = 0) -> None:
        """Count something that is left out. photographs: found and left out with it."""
        self.add(row, count, line)
        self.add("photographs found", photographs)
        self.problems.append(line)

    def skip_box(self, rule: str, line: str, count: int = 1) -> None:
        """Count boxes that are left out by the rule that they break."""
        self.skip(f"boxes skipped: {rule.partition(', got')[0]}", line, count)

    def lines(self) -> list[str]:
        """Return the lines of the table: count, row, and the first place of what deserves a look."""
        places = {row: f": {line}" for row, line in self.first.items()}
        return [f"{count:8,}  {row}{places.get(row, '')}" for row, count in self.counts.items()]

    def report(self, title: str) -> None:
        """Log the table below a title."""
        for line in (title, *self.lines()):
            logger.info("%s", line)

    def to_json(self) -> dict[str, Any]:
        """Return the counts and the first places by row."""
        return {"counts": dict(self.counts), "first": dict(self.first)}
