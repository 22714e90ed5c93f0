"""Start the processes of a service, restart processes that end, and shut all of them down in order."""

import logging
import socket
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import wait
from typing import Any

from lensbox.serve.folders import service_folder
from lensbox.serve.http.api_keys import Keys
from lensbox.serve.models.files import Catalogue
from lensbox.serve.observability.metrics import ServiceCounters, shared_metrics
from lensbox.serve.processes.child import frontend_main
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

        def arguments() -> tuple[Any, ...]:
            return settings, listener, keys, models.front_ends.table

        for number in range(1, 1 + (settings.frontends or 1)):
            name, slot = f"front end {number}", f"frontend-{number}"
            frontends.append(Child(name, slot, frontend_main, arguments, models.take, SILENCE))
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
                waits_for = [one for child in models.children for one in child.waits_for]
                wait(waits_for, _BUSY_TICK if models.is_busy else _TICK)
            seconds = settings.shutdown_timeout
            _log.info("shutting down: requests in progress are answered, within %d seconds", seconds)
            listener.close()  # so that the kernel refuses connections when the front ends have closed theirs
            # The engines run until the front ends have drained, because accepted requests need them.
            # `Shutdown` limits the time of the supervisor, and all child processes end with it.
            running = [child.process for child in frontends if child.process is not None]
            for process in running:
                if models.is_ready:
                    process.terminate()
                else:
                    process.kill()
            for process in running:
                process.join()
            _log.info("ended")
        finally:
            for child in frontends:
                child.kill()
            models.close()
