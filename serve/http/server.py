"""Run the app on a listening socket until a signal ends it."""

import asyncio
import contextlib
import logging
import os
import resource
import socket
import threading
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import uvloop
from fastapi import FastAPI
from starlette.types import ASGIApp, Message
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from lensbox.common.machine import exempt_objects
from lensbox.serve.http.api_keys import Keys
from lensbox.serve.http.app import create_app
from lensbox.serve.http.connection import Connection
from lensbox.serve.http.service import Service
from lensbox.serve.models.served import Models
from lensbox.serve.observability.metrics import Metrics
from lensbox.serve.settings import Settings
from lensbox.serve.shutdown import Shutdown

_log = logging.getLogger(__name__)

_BACKLOG = 1024  # connections that may wait to be accepted
_TICK, _POLL = 0.1, 0.01  # seconds
_LOOK = 1.0  # seconds between looks at all connections
_PAUSE = 1.0  # seconds without accepting after a lack of file descriptors or memory
_LAST_GREETINGS = 0.2  # seconds for connections that were just accepted; a TLS handshake may stall
_LAST_ANSWERS = 0.5  # seconds for the answers to cancelled requests


def run(settings: Settings, listener: socket.socket, keys: Keys, models: Models) -> None:
    """Serve on a bound socket, from which other processes may accept, too, until SIGINT or SIGTERM.

    The loop runs in a thread, so that signals are handled while it is busy. Do not wait for threads that are
    stuck in a decoder.
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
    server = Server(create_app(service), settings)
    Shutdown(settings.shutdown_timeout).ask = drain
    exempt_objects()
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # more files, so more connections
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    # A daemon thread: a stuck thread must not keep the process from ending.
    thread = threading.Thread(
        target=lambda: uvloop.run(server.serve(listener)), name="lensbox-http", daemon=True
    )
    thread.start()
    while thread.is_alive():
        thread.join(_TICK)  # a handler of signals runs in between


class Server:
    """The connections of one process. Set `should_exit` to drain and end."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        self.should_exit = False
        self._app = app
        self._settings = settings
        self._connections: set[Connection] = set()
        self._greetings = set[asyncio.Task[None]]()  # the loop has only weak references to its tasks
        trusted = os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1,::1")
        self._outermost = ProxyHeadersMiddleware(app, trusted)  # type: ignore[arg-type]
        self._tls = settings.tls_context()

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections from a bound, non-blocking socket, which is closed at the end."""
        loop = asyncio.get_running_loop()
        async with _lifespan(self._app):
            with listener:
                listener.listen(_BACKLOG)
                self._start_accepting(listener)
                looking = loop.create_task(self._look())
                while not self.should_exit:
                    await asyncio.sleep(_POLL)
                loop.remove_reader(listener)
                while self._accept(listener):  # a closed listener resets the connections that wait
                    pass
            # Once all processes have closed theirs, the kernel refuses connections.
            await self._drain()
            looking.cancel()

    def _accept(self, listener: socket.socket) -> bool:
        """Accept one connection; return False if none waits.

        uvloop's servers accept all that wait, and leave other processes none.
        """
        loop = asyncio.get_running_loop()
        try:
            client, _ = listener.accept()
        except BlockingIOError:  # none waits: another process has accepted it
            return False
        except ConnectionAbortedError:  # the client is gone: others need not wait
            return True
        except OSError as error:
            _log.error("cannot accept connections: %s", error)
            loop.remove_reader(listener)
            loop.call_later(_PAUSE, self._start_accepting, listener)
            return False
        client.setblocking(False)
        greeting = loop.create_task(self._greet(client))
        self._greetings.add(greeting)
        greeting.add_done_callback(self._greetings.discard)
        return True

    def _start_accepting(self, listener: socket.socket) -> None:
        if not self.should_exit:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    async def _greet(self, client: socket.socket) -> None:
        keep_alive = self._settings.keep_alive_timeout
        protocol = partial(Connection, self._outermost, self._connections, keep_alive)  # type: ignore[arg-type]
        with contextlib.suppress(OSError):  # the client is gone, or does not speak TLS
            await asyncio.get_running_loop().connect_accepted_socket(protocol, client, ssl=self._tls)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            now = asyncio.get_running_loop().time()
            for connection in list(self._connections):
                connection.look(now)

    async def _drain(self) -> None:
        """Answer the requests in progress; those that are left at the end of the time get 503."""
        whole = self._settings.shutdown_timeout
        # Keep a second, or half of the time, for the shutdown itself.
        seconds = whole - _delay(self._settings) - min(1.0, whole / 2)
        if self._greetings:
            await asyncio.wait(self._greetings, timeout=_LAST_GREETINGS)
        for connection in list(self._connections):
            connection.end_soon()
        if not await self._until_closed(seconds):
            _log.warning("requests are cancelled, as the time for the shutdown is over")
            for connection in list(self._connections):
                connection.cancel()
            await self._until_closed(_LAST_ANSWERS)
        for connection in list(self._connections):
            connection.transport.abort()

    async def _until_closed(self, seconds: float) -> bool:
        """Wait until all connections are closed. Return False after some seconds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self._connections and loop.time() < until:
            await asyncio.sleep(_POLL)
        return not self._connections


@contextlib.asynccontextmanager
async def _lifespan(app: ASGIApp) -> AsyncIterator[None]:
    """Start an app, and stop it in the end, by ASGI's messages, which FastAPI's telemetry needs, too.

    Raise RuntimeError if it cannot start.
    """
    asked, told = asyncio.Queue[Message](), asyncio.Queue[Message]()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    running: Any = app(scope, asked.get, told.put)  # not only an awaitable, but a coroutine
    living: asyncio.Task[None] = asyncio.create_task(running)
    await asked.put({"type": "lifespan.startup"})
    if (answer := await told.get())["type"] != "lifespan.startup.complete":
        raise RuntimeError(f"the app cannot start: {answer.get('message')}")
    yield
    await asked.put({"type": "lifespan.shutdown"})
    await living


def _delay(settings: Settings) -> float:
    """Return the seconds from a signal until connections are refused."""
    return min(settings.shutdown_delay, settings.shutdown_timeout / 4)
