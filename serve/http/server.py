"""Run the app under uvicorn until a signal ends it."""

import asyncio
import contextlib
import logging
import os
import resource
import socket
import threading
from typing import Any

import uvicorn
import uvloop
from fastapi import FastAPI

from lensbox.common.machine import exempt_objects
from lensbox.serve.http.api_keys import Keys
from lensbox.serve.http.app import create_app
from lensbox.serve.http.connections import Connection
from lensbox.serve.http.service import Service
from lensbox.serve.models.served import Models
from lensbox.serve.observability.metrics import Metrics
from lensbox.serve.settings import Settings
from lensbox.serve.shutdown import Shutdown

_log = logging.getLogger(__name__)

_BACKLOG = 1024  # connections that may wait to be accepted
_TICK, _POLL = 0.1, 0.01  # seconds
_PAUSE = 1.0  # seconds without accepting after a lack of file descriptors or memory


def run(settings: Settings, listener: socket.socket, keys: Keys, models: Models) -> None:
    """Serve on a bound socket, from which other processes may accept, too, until SIGINT or SIGTERM.

    uvicorn runs in a thread, because in the main thread it would handle signals itself. Do not wait for
    threads that are stuck in a decoder.
    """
    # All front ends share the blocking mode of the socket. A starting front end must not make the accept()
    # of another front end block.
    listener.setblocking(False)

    def drain() -> None:
        """Make /readyz answer 503, so that load balancers leave, then stop."""
        if not service.is_ready:
            server.should_exit = True
            return
        service.draining = True
        timer = threading.Timer(_delay(settings), setattr, (server, "should_exit", True))
        timer.daemon = True
        timer.start()

    service = Service(settings, models, keys, Metrics())
    server = uvicorn.Server(uvicorn_config(create_app(service), settings))
    Shutdown(settings.shutdown_timeout).ask = drain
    exempt_objects()
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # more files, so more connections
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    # A daemon thread: a stuck thread must not keep the process from ending.
    thread = threading.Thread(
        target=lambda: uvloop.run(serve_on(server, listener)), name="lensbox-http", daemon=True
    )
    thread.start()
    while thread.is_alive():
        thread.join(_TICK)  # a handler of signals runs in between


async def serve_on(server: uvicorn.Server, listener: socket.socket) -> None:
    """Run a server, and accept its connections from a bound, non-blocking socket, which is closed at the end.

    Accept one connection at a time, so that connections spread over all front ends: uvloop's own servers
    accept all that wait.
    """
    loop, config = asyncio.get_running_loop(), server.config
    greetings: set[asyncio.Task[None]] = set()  # the loop has only weak references to its tasks

    def protocol() -> Connection:
        return Connection(config, server.server_state, server.lifespan.state)

    async def greet(client: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the client is gone, or does not speak TLS
            await loop.connect_accepted_socket(protocol, client, ssl=config.ssl)

    async def accept() -> None:
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except ConnectionAbortedError:  # the client is gone: others need not wait
                continue
            except OSError as error:
                _log.error("cannot accept connections: %s", error)
                await asyncio.sleep(_PAUSE)
                continue
            client.setblocking(False)
            greeting = loop.create_task(greet(client))
            greetings.add(greeting)
            greeting.add_done_callback(greetings.discard)

    serving = loop.create_task(server.serve(sockets=[]))
    while not server.started and not serving.done():
        await asyncio.sleep(_POLL)
    with listener:
        listener.listen(_BACKLOG)
        accepting = loop.create_task(accept())
        while not server.should_exit and not serving.done():
            await asyncio.sleep(_POLL)
        accepting.cancel()
    # Once all processes have closed theirs, the kernel refuses connections.
    await serving


def uvicorn_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """Return uvicorn's configuration for an app, through uvicorn's public interface only."""
    whole: Any = settings.shutdown_timeout
    asgi: Any = app  # uvicorn and Starlette declare ASGI differently
    return uvicorn.Config(
        asgi,
        log_level="warning",  # it tells the start and the end of each front end
        log_config=None,  # `observability` decides where records go, and logs requests
        access_log=False,
        lifespan="on",
        http=Connection,  # of `serve_on`
        ws="none",
        forwarded_allow_ips=os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1,::1"),
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
