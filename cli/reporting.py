"""Report progress, warnings and errors of commands to stderr through logging; results go to stdout."""

import contextlib
import logging
import sys
from collections.abc import Iterator

LOG_FORMAT = "%(asctime)s %(levelname)s: %(message)s"


class _ProgressFormatter(logging.Formatter):
    """Prefix warnings and errors with their level."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if record.levelno < logging.WARNING else f"{record.levelname.lower()}: {text}"


@contextlib.contextmanager
def reporting() -> Iterator[None]:
    """Configure logging for a command within the context, then restore it for callers from Python."""
    root, package = logging.getLogger(), logging.getLogger("lensbox")
    handlers, root_level, package_level = root.handlers[:], root.level, package.level
    start_reporting()
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(root_level)
        package.setLevel(package_level)


def start_reporting(level: int | str = logging.INFO, as_log: bool = False) -> None:
    """Log to stderr: Lensbox's records from `level` on, warnings and errors of other libraries.

    as_log: start each line with time and level, for commands that run for long.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(LOG_FORMAT) if as_log else _ProgressFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("lensbox").setLevel(level)
