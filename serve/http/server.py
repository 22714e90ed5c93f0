"""Run the app under uvicorn until a signal or a failed start ends it."""

import contextlib
import logging
import os
import resource
import socket
import threading
from typing import Any

import uvicorn
from fastapi import FastAPI

from lensbox.common.machine import exempt_objects
from lensbox.serve.http.api_keys import Keys
from lensbox.serve.http.app import create_app
from lensbox.serve.http.connections import Connection
from lensbox.serve.models.served import Models
from lensbox.serve.observability.logs import LogStyle
from lensbox.serve.settings import Settings
from lensbox.serve.shutdown import Shutdown

_log = logging.getLogger(__name__)

_BACKLOG = 1024  # connections that may wait to be accepted
_ACCEPTED_AT_ONCE = 2  # so that connections spread over all front ends
_TICK = 0.1  # seconds


def run(
    settings: Settings,
    listener: socket.socket,
    log: LogStyle,
    shutdown: Shutdown,
    keys: Keys,
    models: Models | None = None,
) -> Exception | None:
    """Serve on a bound socket. Return None after SIGINT or SIGTERM, or the error if the model cannot start.

    models: models in other processes; then other front ends may accept from the same socket.

    uvicorn runs in a thread, because in the main thread it would handle signals itself. Do not wait for
    threads that are stuck in a decoder or in the model.
    """
    failures: list[Exception] = []
    url = settings.url_of(listener)
    # All front ends share the blocking mode of the socket, and dup() resets the mode. A starting front end
    # must not make the accept() of another front end block.
    listener.setblocking(False)
    shared = listener.dup()  # uvicorn closes its own

    def on_started(failure: Exception | None) -> None:
        if failure is None:
            exempt_objects()
            _log.info("ready: %s on %s", settings.artifact, url)
        else:
            _log.debug("the start failed", exc_info=failure)
            failures.append(failure)
            server.should_exit = True

    def drain() -> None:
        """Make /readyz answer 503, so that load balancers leave, then stop."""
        service = getattr(app.state, "service", None)
        if service is None or not service.models.loaded:
            server.should_exit = True
            return
        service.draining = True
        timer = threading.Timer(_delay(settings), setattr, (server, "should_exit", True))
        timer.daemon = True
        timer.start()

    app = create_app(settings, on_started=on_started, models=models, keys=keys)
    server = uvicorn.Server(uvicorn_config(app, settings, log.level))
    shutdown.ask = drain
    if models is None:
        _log.info("listening on %s, loading %s", url, settings.artifact)
    else:
        exempt_objects()
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # more files, so more connections
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    # A daemon thread: a stuck engine must not keep the process from ending.
    thread = threading.Thread(target=server.run, args=([listener],), name="lensbox-http", daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        thread.join(_TICK)
    # uvicorn's `backlog` sets both the connections per accept and the kernel's queue. Lengthen the queue.
    with contextlib.suppress(OSError):  # closed meanwhile
        shared.listen(_BACKLOG)
    while thread.is_alive() and listener.fileno() != -1:  # until uvicorn accepts no more
        thread.join(_TICK)
        if shutdown.takes_reload() and models is None:
            _log.warning("SIGHUP loads nothing in a service of one process; start it with --frontends 1")
    shared.close()  # once all processes have closed theirs, the kernel refuses connections
    thread.join()
    if not server.started and not server.should_exit:
        failures.append(RuntimeError("the app did not start; see the log for the reason"))
    return failures[0] if failures else None


def uvicorn_config(app: FastAPI, settings: Settings, log_level: str) -> uvicorn.Config:
    """Return uvicorn's configuration for an app, through uvicorn's public interface only."""
    whole: Any = settings.shutdown_timeout
    asgi: Any = app  # uvicorn and Starlette declare ASGI differently
    return uvicorn.Config(
        asgi,
        log_level=log_level,
        log_config=None,  # `observability` decides where records go, and logs requests
        access_log=False,
        lifespan="on",
        # Fixed, so that the service does not depend on other installed packages.
        loop="asyncio",
        http=Connection,
        ws="none",
        forwarded_allow_ips=os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1,::1"),
        backlog=_ACCEPTED_AT_ONCE,
        server_header=False,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        timeout_keep_alive=settings.keep_alive_timeout,
        # Keep a second, or half of the time, for the shutdown itself. (uvicorn declares int and takes float.)
        timeout_graceful_shutdown=whole - _delay(settings) - min(1.0, whole / 2),
    )


def _delay(settings: Settings) -> float:
    """Return the seconds from a signal until connections are refused."""
    return min(settings.shutdown_delay, settings.shutdown_timeout / 4)
