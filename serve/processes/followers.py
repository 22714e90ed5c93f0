"""The front ends as the supervisor sees them: the table that all of them follow, and their latest reports."""

from collections.abc import Sequence

from lensbox.serve.models.control import Report, Row, Table
from lensbox.serve.processes.lifecycle import Child


class Followers:
    """All front ends; each has a `Follower`. children: their processes."""

    def __init__(self) -> None:
        self.children: list[Child] = []
        self.table = Table(0, ())
        self._reports: dict[str, Report] = {}  # by slot

    def greet(self, child: Child) -> None:
        """Tell a new process the current table."""
        self._reports.pop(child.slot, None)
        if child.slot in self.table.unready:
            self.publish()
        else:
            child.send(self.table)

    def publish(self, rows: Sequence[Row] | None = None) -> None:
        """Tell all front ends the next table. rows: None for those of the table before."""
        unready = frozenset(slot for slot, report in self._reports.items() if not report.is_ready)
        self.table = Table(self.table.number + 1, self.table.rows if rows is None else tuple(rows), unready)
        for child in self.children:
            child.send(self.table)

    def note(self, child: Child, report: Report) -> None:
        """Note what a front end uses. Tell the others if it is ready now, or no longer."""
        self._reports[child.slot] = report
        if report.is_ready is (child.slot in self.table.unready):
            self.publish()

    def have_moved_to(self, group: int) -> bool:
        """Return whether all front ends give their new requests to a group, and know that of the others."""
        number = self.table.number
        return all(
            report is not None and report.number == number and group in report.serving
            for report in self._running
        )

    def use(self, group: int, since: int) -> bool:
        """Return whether a front end may use a group that left with table `since`."""
        return any(
            report is None or report.number < since or group in report.used for report in self._running
        )

    @property
    def _running(self) -> list[Report | None]:
        return [self._reports.get(child.slot) for child in self.children if child.process is not None]
