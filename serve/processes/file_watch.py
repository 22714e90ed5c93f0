"""Look at the files of the versions that serve: tell of changes, once a change."""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from lensbox.serve.models.content import Content, sha256_of, stamp_of
from lensbox.serve.observability.metrics import ServiceCounters
from lensbox.serve.processes.group import Group
from lensbox.serve.processes.swap_state import Stamp

_log = logging.getLogger(__name__)

_LOOK = 2.0  # seconds between looks


class FileWatch:
    """Compare files with the bytes that were loaded. reader: reads files, because a disk may hang."""

    def __init__(self, reader: ThreadPoolExecutor, counters: ServiceCounters) -> None:
        self._reader = reader
        self._counters = counters
        self._looked = time.monotonic()
        self._looking: Future[list[tuple[Group, Stamp]]] | None = None

    def look(self, groups: Sequence[Group]) -> bool:
        """Begin a look if it is time for one, and return whether; tell what the look before has found."""
        if self._looking is not None:
            if self._looking.done():
                self._tell(self._looking.result())
                self._looking = None
            return False
        if time.monotonic() - self._looked < _LOOK:
            return False
        self._looked = time.monotonic()
        self._looking = self._reader.submit(lambda: [(group, _change_of(group.content)) for group in groups])
        return True

    def _tell(self, changes: Sequence[tuple[Group, Stamp]]) -> None:
        for group, change in changes:
            self._counters.file_changed(group.name, bool(change))
            if change and change != group.change:
                _log.warning(
                    "the file of %s version %s has changed or is gone: %s; the loaded bytes serve on",
                    *(group.name, group.version, group.content.path),
                )
            group.change = change


def _change_of(content: Content) -> Stamp:
    """Return the stamp of a file that has changed since it was read; an empty one without a change."""
    try:
        stamp = stamp_of(content.path.stat())
        return stamp if stamp != content.stamp and sha256_of(content.path) != content.sha256 else ()
    except OSError:
        return (0,)  # gone
