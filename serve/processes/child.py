"""Entry points of the processes that the fork server forks, and the set-up that they share.

The supervisor imports this module without torch: the entry points import their code when they run.
"""

import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lensbox.serve.models.files import Content
from lensbox.serve.observability.logs import start_log
from lensbox.serve.observability.metrics import join_shared_metrics
from lensbox.serve.settings import Settings
from lensbox.serve.shutdown import end_process

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from lensbox.serve.http.api_keys import Keys
    from lensbox.serve.models.control import EngineAddress, Table

    Pipe = Connection[Any, Any]

_MOST_BYTES_PER_PIXEL = 4


def engine_main(
    status: "Pipe",
    files: Sequence[int],
    slot: str,
    settings: Settings,
    model: str,
    address: "EngineAddress",
    content: Content,
    folder: str,
) -> None:
    """Run an engine. files: of the content. See `engine_process.main`."""
    _begin("lensbox-engine", slot, settings)
    from lensbox.serve.processes.engine_process import main

    main(settings, model, address, replace(content, file=files[0]), folder, status)


def frontend_main(
    control: "Pipe", files: Sequence[int], slot: str, settings: Settings, keys: "Keys", table: "Table"
) -> None:
    """Run a front end until SIGTERM. The process exits with 0. files: of the bound socket."""
    _begin("lensbox-http", slot, settings)
    from lensbox.serve.http.server import run
    from lensbox.serve.processes.follower import Follower

    models = Follower(control, table, arena_size(settings))
    run(settings, socket.socket(fileno=files[0]), keys, models)
    end_process(0)


def arena_size(settings: Settings) -> int:
    """Return the bytes of shared memory per front end: a share of `queue_bytes`, at least one image."""
    largest = max(_MOST_BYTES_PER_PIXEL * settings.max_pixels, settings.max_body_bytes)
    return max(settings.queue_bytes // (settings.frontends or 1), largest) + (1 << 16)


def _begin(name: str, slot: str, settings: Settings) -> None:
    """Set up a process. name: in ps and top, at most 15 characters. slot: see `join_shared_metrics`."""
    Path("/proc/self/comm").write_text(name)
    start_log(settings.log_level, settings.log_format)
    join_shared_metrics(slot)
