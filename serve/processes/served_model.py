"""One model as the supervisor sees it: the group that serves it, its swaps, its failed loads."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field

from lensbox.common.errors import ExitCode, LensboxError
from lensbox.serve.models.files import Stamp
from lensbox.serve.processes.group import Group

LOADING, UNLOADED = "the model is still loading", "the model is unloaded"

Steps = Generator[None, None, None]


class EngineStartError(LensboxError):
    """A model cannot be loaded; the message says why."""

    exit_code = ExitCode.UNUSABLE


@dataclass
class ServedModel:
    """A model. key: its name, or `files.ONE`, whose name is known once it has been loaded. group: serves;
    None while loading and after unloading, for a `reason`.

    is_wanted: False before the first load that was asked for, and after unloading. task: the current swap.
    waiting: later ones, oldest first. failed: reasons by version. loads: successful ones. seen, tried: newest
    version and stamp of its file at the last look, and at the last load by --watch.
    """

    key: str
    loaded_name: str = ""
    group: Group | None = None
    reason: str = LOADING
    is_wanted: bool = True
    task: Steps | None = None
    waiting: list[Steps] = field(default_factory=list)
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
            return self.task is None and self.reason != UNLOADED
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
