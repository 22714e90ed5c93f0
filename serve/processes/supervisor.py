"""Start the processes of a service, restart processes that end, and shut all of them down in order."""

import logging
import signal
import socket
import tempfile
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from lensbox.serve.folders import service_folder
from lensbox.serve.http.api_keys import Keys
from lensbox.serve.models.files import Catalogue
from lensbox.serve.observability.metrics import ServiceCounters, shared_metrics
from lensbox.serve.processes import frontend_process
from lensbox.serve.processes.forking import fork
from lensbox.serve.processes.group import Plan
from lensbox.serve.processes.lifecycle import Child
from lensbox.serve.processes.repository import Repository
from lensbox.serve.settings import Settings
from lensbox.serve.shutdown import Shutdown

_log = logging.getLogger(__name__)

_TICK, _BUSY_TICK = 0.1, 0.02  # seconds between checks for signals; during a swap
SILENCE = 30.0  # seconds without a heartbeat after which a front end is killed


def run(
    settings: Settings,
    devices: Sequence[str],
    listener: socket.socket,
    shutdown: Shutdown,
    keys: Keys,
) -> None:
    """Serve on a bound socket until SIGINT or SIGTERM. SIGHUP loads what the folder or the file holds now.

    Raise LensboxError if a model cannot start.
    """
    asked: list[bool] = []
    shutdown.ask = lambda: asked.append(True)
    catalogue = Catalogue(settings.artifact, settings.models)
    url = settings.url_of(listener)
    _log.info("listening on %s, loading %s", url, catalogue.source)
    with service_folder(tempfile.gettempdir()) as temporary, shared_metrics("supervisor"):
        counters = ServiceCounters()
        models = Repository(catalogue, Plan(settings, devices, counters, set(), temporary))
        frontends = models.front_ends.children

        def launch(slot: str) -> Any:
            main = partial(frontend_process.main, settings, keys, models.front_ends.table, listener)
            return fork("lensbox-http", slot, main, listener.fileno())

        for number in range(1, 1 + (settings.frontends or 1)):
            slot = f"frontend-{number}"
            frontends.append(Child(f"front end {number}", slot, partial(launch, slot), models.take, SILENCE))

        def look() -> None:
            """Keep the engines alive; then wait until a process tells something."""
            models.keep_alive()
            pipes = [child.pipe for child in models.children if child.pipe is not None]
            wait(pipes, _BUSY_TICK if models.is_busy else _TICK)

        try:
            models.start()
            while not asked:
                for child in frontends:
                    child.keep_alive(counters)
                was_ready = models.is_ready
                models.step()
                if models.is_ready and not was_ready:
                    versions = [f"{group.name} version {group.version}" for group in models.serving]
                    _log.info("ready: %s on %s", ", ".join(versions), url)
                if shutdown.takes_reload():
                    models.load_news()
                look()
            seconds = settings.shutdown_timeout
            _log.info("shutting down: requests in progress are answered, within %d seconds", seconds)
            listener.close()  # so that the kernel refuses connections when the front ends have closed theirs
            # The engines run until the front ends have drained, because accepted requests need them.
            # `Shutdown` limits the time of the supervisor, and all child processes end with it.
            for child in frontends:
                child.kill(signal.SIGTERM if models.is_ready else signal.SIGKILL)
            while any(child.is_running for child in frontends):
                for child in frontends:
                    child.receive()  # a full pipe would hold up the front end
                look()
            _log.info("ended")
        finally:
            for child in frontends:
                child.kill()
            models.close()
