"""What the supervisor knows of each model and of each front end."""

from collections.abc import Generator
from dataclasses import dataclass, field

from lensbox.serve.models.control import Report
from lensbox.serve.processes.group import Group
from lensbox.serve.processes.lifecycle import Child

LOADING, UNLOADED = "the model is still loading", "the model is unloaded"

Stamp = tuple[int, ...]
Steps = Generator[None, None, None]


@dataclass
class FrontEnd:
    """A front end's process, and its latest report."""

    child: Child
    report: Report | None = None

    def uses(self, number: int, since: int) -> bool:
        """Return whether the process may use a group that left with table `since`."""
        if self.child.process is None:
            return False
        return self.report is None or self.report.number < since or number in self.report.used

    def has_moved_to(self, number: int) -> bool:
        """Return whether the process gives its new requests to a group."""
        return self.child.process is None or (self.report is not None and number in self.report.serving)


@dataclass
class ServedModel:
    """A model. name: known once it has been loaded, for a service with --artifact. group: serves; None while
    loading and after unloading, for a `reason`.

    is_wanted: False before the first load that was asked for, and after unloading. task: the current swap.
    waiting: later ones, oldest first. failed: reasons by version. loads: successful ones. seen, tried: newest
    version and stamp of its file at the last look, and at the last load by --watch.
    """

    key: str
    name: str = ""
    group: Group | None = None
    reason: str = LOADING
    is_wanted: bool = True
    task: Steps | None = None
    waiting: list[Steps] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    loads: int = 0
    seen: Stamp = ()
    tried: Stamp = ()
