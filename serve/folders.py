"""Temporary folders of a service, also of one that was killed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lensbox.common.errors import system_reason
from lensbox.serve.errors import StartupError

_PREFIX = "lensbox-service-"
_NEW = 60.0  # seconds; a younger folder may not be locked yet


@contextlib.contextmanager
def service_folder(place: str) -> Iterator[str]:
    """Make a folder in `place`, and remove it in the end. Raise StartupError if `place` cannot be written.

    The folder has a lock, which ends with this process. Folders without one belong to services that were
    killed, and are removed.
    """
    for old in Path(place).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), _locked(old):
            if time.time() - old.stat().st_mtime > _NEW:
                shutil.rmtree(old)
    try:
        folder = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place, ignore_cleanup_errors=True)
    except OSError as error:
        raise StartupError(f"the folder {place} must be writable: {system_reason(error)}") from error
    with folder as path, _locked(Path(path)):
        yield path


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. Raise OSError if another process holds it."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(file)
