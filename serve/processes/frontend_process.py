"""The process of one front end: HTTP, limits and decoding, as in a service of one process."""

import socket
from collections.abc import Sequence
from dataclasses import replace

from lensbox.serve.ending import Ending
from lensbox.serve.engine.batch_sizes import LARGEST_ON_GPU
from lensbox.serve.observability.logs import LogStyle
from lensbox.serve.processes.addresses import EngineAddress
from lensbox.serve.processes.arena import Arena
from lensbox.serve.processes.child import begin_child, end_child
from lensbox.serve.processes.peers import Peers
from lensbox.serve.processes.remote_engine import RemoteEngine, RemoteEngines
from lensbox.serve.security.access import Access
from lensbox.serve.server import run
from lensbox.serve.settings import Settings

_MOST_BYTES_A_PIXEL = 4


def main(
    settings: Settings,
    listener: socket.socket,
    addresses: Sequence[EngineAddress],
    log: LogStyle,
    access: Access,
    peers: Peers,
) -> None:
    """Serves until SIGTERM. The process ends with 0."""
    begin_child("lensbox-http", log)
    ending = Ending(settings.shutdown_timeout)
    share = replace(settings, max_connections=-(-settings.max_connections // (settings.frontends or 1)))
    arena = Arena(arena_size(settings))
    most = settings.queue_size + (settings.max_batch or LARGEST_ON_GPU)
    busy_poll = (settings.busy_poll or 0) / 1000
    engine = RemoteEngines([RemoteEngine(address, arena, most, busy_poll) for address in addresses])
    with listener:
        run(share, listener, log, ending, access, engine, peers)
    end_child(0)


def arena_size(settings: Settings) -> int:
    """Bytes of the images that one front end may hand over: its share of `queue_bytes`, and at least the
    largest image."""
    largest = max(_MOST_BYTES_A_PIXEL * settings.max_pixels, settings.max_body_bytes)
    return max(settings.queue_bytes // (settings.frontends or 1), largest) + (1 << 16)
