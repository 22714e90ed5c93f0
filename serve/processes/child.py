"""Entry points of the child processes, and set-up and exit that all of them share.

The supervisor imports this module without torch: the entry points import their code when they run.
"""

import ctypes
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lensbox.serve.observability.logs import start_log
from lensbox.serve.observability.metrics import join_shared_metrics
from lensbox.serve.settings import Settings
from lensbox.serve.shutdown import end_process

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from lensbox.serve.http.api_keys import Keys
    from lensbox.serve.models.control import Table

_PR_SET_PDEATHSIG = 1  # of Linux' prctl
_MOST_BYTES_PER_PIXEL = 4
SUPERVISOR = "LENSBOX_SUPERVISOR_PID"  # a variable of the fork server

# Modules that the fork server imports once, so that a child starts in a fraction of a second.
PRELOADED = (
    "lensbox.serve.processes.fork_server",
    "lensbox.serve.processes.engine_process",
    "lensbox.serve.http.server",
)


def engine_main(slot: str, settings: Settings, *arguments: Any) -> None:
    """Run an engine. See `engine_process.main`."""
    _begin("lensbox-engine", slot, settings)
    from lensbox.serve.processes.engine_process import main

    main(settings, *arguments)


def frontend_main(
    slot: str,
    settings: Settings,
    listener: socket.socket,
    keys: "Keys",
    table: "Table",
    control: "Connection[Any, Any]",
) -> None:
    """Run a front end until SIGTERM. The process exits with 0."""
    _begin("lensbox-http", slot, settings)
    from lensbox.serve.http.server import run
    from lensbox.serve.processes.follower import Follower

    models = Follower(control, table, arena_size(settings))
    run(settings, listener, keys, models)
    end_process(0)


def arena_size(settings: Settings) -> int:
    """Return the bytes of shared memory per front end: a share of `queue_bytes`, at least one image."""
    largest = max(_MOST_BYTES_PER_PIXEL * settings.max_pixels, settings.max_body_bytes)
    return max(settings.queue_bytes // (settings.frontends or 1), largest) + (1 << 16)


def _begin(name: str, slot: str, settings: Settings) -> None:
    """Set up a child process to end with its parent and to ignore Ctrl+C, which the supervisor handles.

    name: name in ps and top, at most 15 characters. slot: see `join_shared_metrics`.
    """
    Path("/proc/self/comm").write_text(name)
    os.setsid()
    end_with_parent()
    start_log(settings.log_level, settings.log_format)
    join_shared_metrics(slot)


def end_with_parent() -> None:
    """Let the kernel send SIGKILL to this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
