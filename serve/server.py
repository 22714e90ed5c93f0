"""Runs the app under uvicorn until a signal or a failed start ends it."""

import contextlib
import gc
import logging
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from lensbox.serve.app import create_app
from lensbox.serve.ending import Ending
from lensbox.serve.listener import url_of
from lensbox.serve.settings import Settings

_log = logging.getLogger(__name__)


def serve(settings: Settings, listener: socket.socket, log_level: str, ending: Ending) -> Exception | None:
    """Serves on a bound socket. Returns None after SIGINT or SIGTERM, else why the model could not start.

    Threads that are stuck in a decoder or in the model are left behind.
    """
    failures: list[Exception] = []
    url = url_of(listener)  # uvicorn closes the socket, which then has no name

    def on_started(failure: Exception | None) -> None:
        if failure is None:
            # What is loaded by now stays. Else the garbage collector looks through all of it again and again,
            # and stops every thread for a tenth of a second each time.
            gc.collect()
            gc.freeze()
            _log.info("ready: %s on %s", settings.artifact, url)
        else:
            _log.debug("the start failed", exc_info=failure)
            failures.append(failure)
            stop()

    def stop() -> None:
        server.should_exit = True

    server = _Server(
        uvicorn.Config(
            create_app(settings, on_started=on_started),
            log_level=log_level,
            lifespan="on",
            ws="none",
            server_header=False,
            timeout_keep_alive=settings.keep_alive_timeout,
            timeout_graceful_shutdown=_time_for_requests(settings.shutdown_timeout),
        )
    )
    ending.ask = stop
    _log.info("listening on %s, loading %s", url, settings.artifact)
    server.run(sockets=[listener])
    return failures[0] if failures else None


def _time_for_requests(shutdown_timeout: int) -> Any:
    """How long requests in progress may go on: one second, or half of the time, is for the end itself."""
    return shutdown_timeout - min(1.0, shutdown_timeout / 2)  # uvicorn says int, and takes a float as well


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to `Ending`."""
        yield
