"""Show the progress of a long export: the current step, its time so far, and its loop."""

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Protocol, TypeVar

_logger = logging.getLogger(__name__)
_EXPORT = logging.getLogger("lensbox.export")
_SECONDS = 10.0

Item = TypeVar("Item", covariant=True)


class SizedItems(Sized, Iterable[Item], Protocol[Item]):
    """An iterable with a length."""


class Progress(logging.Handler):
    """Remember the last step that the export logged, and the loop that runs."""

    loop = ""  # shared by the process, which exports one detector at a time

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.step, self.start = "", time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        """Store a message as the current step, unless it is a warning or from this module."""
        if record.levelno == logging.INFO and record.name != __name__:
            self.step, self.start = record.getMessage(), time.monotonic()

    def report(self) -> None:
        """Log the current step again, with its time so far."""
        seconds = time.monotonic() - self.start
        _logger.info("still %s (%.0f s%s)", self.step, seconds, Progress.loop)


@contextmanager
def shown_progress() -> Iterator[None]:
    """Log the current step of an export every ten seconds, from a thread."""
    progress, done = Progress(), threading.Event()

    def repeat() -> None:
        while not done.wait(_SECONDS):
            if time.monotonic() - progress.start >= _SECONDS:
                progress.report()

    thread = threading.Thread(target=repeat, daemon=True)
    _EXPORT.addHandler(progress)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        _EXPORT.removeHandler(progress)


def counted(items: SizedItems[Item], unit: str) -> Iterator[Item]:
    """Yield the items; progress shows how many are done."""
    try:
        for index, item in enumerate(items):
            Progress.loop = f", {index} of {len(items)} {unit} done"
            yield item
    finally:
        Progress.loop = ""
