"""Report progress, warnings and errors of commands to stderr through logging; results go to stdout."""

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

LOG_FORMAT = "%(asctime)s %(levelname)s: %(message)s"

USED = (
    "LENSBOX_API_KEY",
    "LENSBOX_API_KEYS",
    "LENSBOX_ONNXRUNTIME",
    "LENSBOX_OPS_LIBRARY",
    "LENSBOX_RUNNER",
)
# Variables of this repository's tests and documents, which may be set in the same shell.
_OF_DEVELOPMENT = re.compile(r"LENSBOX_(REQUIRE_\w+|REPOSITORY_URL)")
# Variables that Kubernetes sets in each pod for a service whose name begins with "lensbox".
_OF_KUBERNETES = re.compile(r"\w+_SERVICE_(HOST|PORT(_\w+)?)|\w+_PORT(_\d+_\w+)?")


_log = logging.getLogger(__name__)


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


def warn_of_unknown_variables() -> None:
    """Warn of each unknown variable LENSBOX_..."""
    for message in unknown_variables(os.environ):
        _log.warning(message)


def unknown_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a message for each variable LENSBOX_... that nothing reads, with a similar name."""
    in_a_pod = "KUBERNETES_SERVICE_HOST" in environment
    for name in sorted(environment):
        if not name.startswith("LENSBOX_") or name in USED or _OF_DEVELOPMENT.fullmatch(name):
            continue
        if in_a_pod and _OF_KUBERNETES.fullmatch(name):
            continue
        near = get_close_matches(name, USED, 1, cutoff=0.8)
        hint = f"did you mean {near[0]}?" if near else f"known variables: {', '.join(USED)}"
        yield f"the environment variable {name} has no effect ({hint})"
