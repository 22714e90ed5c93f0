"""The state of the supervisor: the group and the swaps of each model, the latest report of each front end."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field

from lensbox.serve.models.control import Report, Row, Table
from lensbox.serve.models.files import Stamp
from lensbox.serve.processes.group import Group
from lensbox.serve.processes.lifecycle import Child

LOADING, UNLOADED = "the model is still loading", "the model is unloaded"
FAILED = "the model could not be loaded; the log of the service has the reason"

Steps = Generator[None, None, None]


@dataclass
class ModelState:
    """A model. key: its name in the catalogue. name: the same, or the artifact's for
    `files.UNNAMED`, known once it is loaded.

    reason: why it does not serve while `group` is None; "" before the first load that was asked for. swaps:
    the current one and later ones, oldest first. failed: reasons by version. loads: successful ones. noted:
    the latest version at the last load, see `Choice`. exists: it has files.
    """

    key: str
    name: str
    reason: str
    group: Group | None = None
    swaps: list[Steps] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    loads: int = 0
    noted: tuple[int, Stamp] = (-1, ())
    exists: bool = True

    @property
    def row(self) -> Row | None:
        """The row of the model in the table of front ends; None if nobody has asked for the model."""
        if self.group is not None:
            group = self.group
            return Row(group.name, group.version, group.number, group.addresses, "", True)
        return Row(self.name, "", None, (), self.reason, self.reason == LOADING) if self.reason else None

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
    """All front ends; each has a `Follower`. children: their processes. reports: the latest, by slot."""

    def __init__(self) -> None:
        self.children: list[Child] = []
        self.table = Table(0, ())
        self.reports: dict[str, Report] = {}

    def publish(self, rows: Iterable[Row], is_ready: bool) -> None:
        """Send a new table to all front ends."""
        self.table = Table(self.table.number + 1, tuple(rows), is_ready)
        for child in self.children:
            child.send(self.table)

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
        return [self.reports.get(child.slot) for child in self.children if child.pid is not None]
