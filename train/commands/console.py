"""How the commands of training speak: results on standard output, all else by logging on standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lensbox.errors import ExitCode, LensboxError

ROOT = "lensbox"  # logger of the package

logger = logging.getLogger(__name__)


def run_command(name: str, body: Callable[[], int]) -> int:
    """Runs the body of a command with logging on standard error. Returns its exit code.

    An error that the user can mend is said in a line, with the exit code of its class; a file that cannot be
    read or written, or a full disk, with `UNUSABLE`. Other exceptions pass through, for their traceback.
    """
    with _logging_to_stderr(name):
        try:
            return body()
        except LensboxError as error:
            logger.error("%s", error)
            return error.exit_code
        except OSError as error:
            logger.error("%s", error)
            return ExitCode.UNUSABLE


def only_errors() -> None:
    """Silences all but errors, in the processes beside the first of a group."""
    logging.getLogger(ROOT).setLevel(logging.ERROR)


@contextmanager
def _logging_to_stderr(name: str) -> Iterator[None]:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_CommandFormatter(name))
    package = logging.getLogger(ROOT)
    level = package.level
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    try:
        yield
    finally:
        package.removeHandler(handler)
        package.setLevel(level)


class _CommandFormatter(logging.Formatter):
    """Progress as it is; errors after the name of the command."""

    def __init__(self, command: str) -> None:
        super().__init__("%(message)s")
        self._command = command

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return f"lensbox {self._command}: {text}" if record.levelno >= logging.ERROR else text
