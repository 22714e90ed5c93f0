"""The state of the supervisor: the group and the swaps of each model, the latest report of each front end."""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field

from lensbox.common.errors import ExitCode, LensboxError
from lensbox.serve.models.control import Report, Row, Table
from lensbox.serve.models.files import Stamp
from lensbox.serve.processes.group import Group
from lensbox.serve.processes.lifecycle import Child

LOADING, UNLOADED = "the model is still loading", "the model is unloaded"

Steps = Generator[None, None, None]


class EngineStartError(LensboxError):
    """A model cannot be loaded; the message says why."""

    exit_code = ExitCode.UNUSABLE


@dataclass
class ServedModel:
    """A model. key: its name, or `files.ONE`, whose name is known once it has been loaded. group: serves;
    None while loading and after unloading, for a `reason`.

    is_wanted: False before the first load that was asked for, and after unloading. swaps: the current one and
    later ones, oldest first. failed: reasons by version. loads: successful ones. seen, tried: newest version
    and stamp of its file at the last look, and at the last load by --watch.
    """

    key: str
    loaded_name: str = ""
    group: Group | None = None
    reason: str = LOADING
    is_wanted: bool = True
    swaps: list[Steps] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    loads: int = 0
    seen: Stamp = ()
    tried: Stamp = ()

    @property
    def name(self) -> str:
        return self.key or self.loaded_name

    def is_news(self, newest: int, stamp: Stamp) -> bool:
        """Return whether the newest version is not the one that serves, or its file has changed."""
        if self.group is None:
            return not self.swaps and self.reason != UNLOADED
        return (newest and str(newest) != self.group.version) or stamp != self.group.content.stamp

    def index(self, versions: Iterable[int]) -> list[dict[str, str]]:
        """Return a row of the repository's index for each version on the disk or in use."""
        serving = None if self.group is None else self.group.version
        known = {str(number) for number in versions if number} | ({serving} if serving else set())
        return [
            {
                "name": self.name,
                "version": version,
                "state": "READY" if version == serving else "UNAVAILABLE",
                "reason": "" if version == serving else self.failed.get(version, ""),
            }
            for version in sorted(known, key=int)
        ]


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
        """Send a new table to all front ends. rows: None keeps the rows of the current table."""
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
        """Return whether all front ends have the latest table, and give their new requests to a group."""
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
