"""How all commands report: progress and errors through logging, to stderr; stdout is for results."""

import contextlib
import logging
import sys
from collections.abc import Iterator

LOG_FORMAT = "%(levelname)s: %(message)s"


class _ProgressFormatter(logging.Formatter):
    """Only warnings and errors say what they are."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if record.levelno < logging.WARNING else f"{record.levelname.lower()}: {text}"


@contextlib.contextmanager
def reporting() -> Iterator[None]:
    """Reports while a command runs. Then all is as it was, for those who call commands from Python."""
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
    """Sends records to stderr: Lensbox's own from `level` on, other libraries' warnings and errors.

    as_log: for what runs for long, each line names its level.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(LOG_FORMAT) if as_log else _ProgressFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("lensbox").setLevel(level)
