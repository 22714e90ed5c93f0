"""Runs the app under uvicorn until a signal or a failed start ends it."""

import logging
import signal
import socket
from types import FrameType

import uvicorn

from lensbox.serve.app import create_app
from lensbox.serve.listener import url_of
from lensbox.serve.settings import Settings

_log = logging.getLogger(__name__)


def serve(settings: Settings, listener: socket.socket, log_level: str) -> Exception | None:
    """Serves on a bound socket. Returns None after SIGINT or SIGTERM, else why the model could not start."""
    failures: list[Exception] = []
    url = url_of(listener)  # uvicorn closes the socket, which then has no name

    def on_started(failure: Exception | None) -> None:
        if failure is None:
            _log.info("ready: %s on %s", settings.artifact, url)
        else:
            _log.debug("the start failed", exc_info=failure)
            failures.append(failure)
            server.should_exit = True

    server = uvicorn.Server(
        uvicorn.Config(
            create_app(settings, on_started=on_started),
            log_level=log_level,
            lifespan="on",
            ws="none",
            server_header=False,
            timeout_keep_alive=settings.keep_alive_timeout,
            timeout_graceful_shutdown=settings.shutdown_timeout,
        )
    )
    _exit_on_signals(server)
    _log.info("listening on %s, loading %s", url, settings.artifact)
    server.run(sockets=[listener])
    return failures[0] if failures else None


def _exit_on_signals(server: uvicorn.Server) -> None:
    """SIGINT and SIGTERM end the service in order, and the process with 0.

    uvicorn has handlers of its own while it runs, but raises the signal again once it has shut down, which
    would end the process by that signal. This handler then has nothing left to do; before uvicorn's are in
    place, it asks for the end.
    """

    def handle(_: int, __: FrameType | None) -> None:
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
