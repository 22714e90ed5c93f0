"""The account of labelled data: what was read, what was left out and why, as one table."""

import logging
from dataclasses import dataclass, field
from typing import Any

MISSING = "photographs skipped: no such file"
TWICE = "names given twice"
ROWS = (
    *("photographs found", "photographs used", "photographs without boxes"),
    *("boxes used", "boxes clipped", "boxes to ignore"),
    *("label files without a photograph", "categories without annotations", TWICE),
)

logger = logging.getLogger(__name__)


@dataclass
class Account:
    """The account of what was read.

    counts: by row of a table, `ROWS` first. first: a line on the first file of a row, if the row deserves a
    look. problems: a line for each thing that was left out.
    """

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROWS, 0))
    first: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

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
        """Return the lines of the table: count, row, and the first place."""
        places = {row: f": {line}" for row, line in self.first.items()}
        return [f"{count:8,}  {row}{places.get(row, '')}" for row, count in self.counts.items()]

    def report(self, title: str) -> None:
        """Log the table below a title."""
        logger.info("%s", "\n".join([title, *self.lines()]))

    def to_json(self) -> dict[str, Any]:
        """Return the counts and the first places by row."""
        return {"counts": self.counts, "first": self.first}
