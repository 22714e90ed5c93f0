"""The process of a front end: serve HTTP on the bound socket of the service."""

import socket
from multiprocessing.connection import Connection
from typing import Any

from lensbox.serve.http.api_keys import Keys
from lensbox.serve.http.server import run
from lensbox.serve.models.control import Table
from lensbox.serve.processes.follower import Follower
from lensbox.serve.settings import Settings
from lensbox.serve.shutdown import end_process

_MOST_BYTES_PER_PIXEL = 4


def main(
    settings: Settings, keys: Keys, table: Table, listener: socket.socket, control: "Connection[Any, Any]"
) -> None:
    """Run until SIGTERM. The process exits with 0. control: see `Follower`."""
    models = Follower(control, table, arena_size(settings))
    run(settings, listener, keys, models)
    end_process(0)


def arena_size(settings: Settings) -> int:
    """Return the bytes of shared memory per front end: a share of `queue_bytes`, at least one image."""
    largest = max(_MOST_BYTES_PER_PIXEL * settings.max_pixels, settings.max_body_bytes)
    return max(settings.queue_bytes // (settings.frontends or 1), largest) + (1 << 16)
