"""Runs the app under uvicorn until a signal or a failed start ends it."""

import asyncio
import contextlib
import functools
import gc
import logging
import math
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import uvicorn

from lensbox.serve.app import create_app
from lensbox.serve.connections import capacity, connection_class, warn_when_out_of_files
from lensbox.serve.early_refusals import early_refusal
from lensbox.serve.ending import Ending
from lensbox.serve.engine.engines import Engine
from lensbox.serve.listener import url_of
from lensbox.serve.observability.logs import LogStyle
from lensbox.serve.processes.heartbeat import Peers
from lensbox.serve.security.access import Access
from lensbox.serve.settings import Settings
from lensbox.serve.slow_clients import Patience

_log = logging.getLogger(__name__)

_BACKLOG = 1024  # connections that may wait to be accepted
_MOST_WAITING = 64  # that are accepted at a tick


def run(
    settings: Settings,
    listener: socket.socket,
    log: LogStyle,
    ending: Ending,
    access: Access,
    engine: Engine | None = None,
    peers: Peers | None = None,
) -> Exception | None:
    """Serves on a bound socket. Returns None after SIGINT or SIGTERM, else why the model could not start.

    engine: one in other processes.
    peers: others that accept connections of the socket, too. They are told ten times a second how this one
        is, while its event loop turns.
    Threads that are stuck in a decoder or in the model are left behind.
    """
    failures: list[Exception] = []
    url = url_of(listener, settings.scheme)  # uvicorn closes the socket, which then has no name

    def on_started(failure: Exception | None) -> None:
        if failure is None:
            _freeze()
            _log.info("ready: %s on %s", settings.artifact, url)
        else:
            _log.debug("the start failed", exc_info=failure)
            failures.append(failure)
            stop()

    def stop() -> None:
        server.should_exit = True

    def end() -> None:
        """An orderly end: balancers are told first."""
        service = getattr(app.state, "service", None)
        if service is None or not service.instance.loaded:
            stop()
            return
        service.ending = True
        server.end_at = time.monotonic() + _delay(settings)

    app = create_app(settings, on_started=on_started, engine=engine, access=access, peers=peers)
    room = capacity(settings.max_connections)
    server = _Server(
        uvicorn.Config(
            app,
            log_level=log.level,
            log_config=None,  # uvicorn's records go where all go; requests are logged by `observability`
            access_log=False,
            lifespan="on",
            # Chosen here, so that the service is the same whatever else is installed.
            loop="asyncio",
            http=connection_class(
                room.connections,
                settings.max_client_connections,
                Patience(settings.header_timeout, settings.body_timeout, settings.send_timeout),
                app.metrics.connection_closed,
                functools.partial(early_refusal, app),
            ),
            ws="none",
            # One at a time where others accept, too: who is free takes the next.
            backlog=room.burst if engine is None else 1,
            server_header=False,
            ssl_certfile=settings.tls_certificate,
            ssl_keyfile=settings.tls_key,
            timeout_keep_alive=settings.keep_alive_timeout,
            timeout_graceful_shutdown=_time_for_requests(settings),
        )
    )
    if peers is not None:
        server.each_tick = lambda: peers.beat(app.state.service.is_ready)
    server.is_one_of_several = peers is not None
    ending.ask = end
    if engine is None:
        _log.info("listening on %s, loading %s", url, settings.artifact)
    else:
        _freeze()
    server.run(sockets=[listener])
    return failures[0] if failures else None


def _freeze() -> None:
    """What is loaded by now stays. Else the garbage collector looks through all of it again and again, and
    stops every thread for a tenth of a second each time."""
    gc.collect()
    gc.freeze()


def _delay(settings: Settings) -> float:
    """Seconds from a signal until no more connections are accepted."""
    return min(settings.shutdown_delay, settings.shutdown_timeout / 4)


def _time_for_requests(settings: Settings) -> Any:
    """How long requests in progress may then go on: a second, or half of the time, is for the end itself."""
    whole = settings.shutdown_timeout
    return whole - _delay(settings) - min(1.0, whole / 2)  # uvicorn says int, and takes a float as well


class _Server(uvicorn.Server):
    end_at = math.inf  # on the clock of `time.monotonic`
    each_tick: Callable[[], None] = staticmethod(lambda: None)
    is_one_of_several = False  # that accept from the same sockets

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._listeners: list[socket.socket] = []
        self._accepting: set[asyncio.Task[Any]] = set()

    async def on_tick(self, counter: int) -> bool:
        self.each_tick()
        if self.is_one_of_several:
            self.accept_waiting(self._listeners)
        if time.monotonic() >= self.end_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        warn_when_out_of_files(loop)
        await super().startup(sockets=[])
        config = self.config
        for listener in sockets or []:
            # As uvicorn does it, but for TLS: the connections begin it themselves.
            server = await loop.create_server(self._connection, sock=listener, backlog=config.backlog)
            self.servers.append(server)
            self._listeners.append(listener)
            # To asyncio `backlog` is how many connections it accepts at once, too; here it is that alone.
            listener.listen(_BACKLOG)

    def accept_waiting(self, listeners: Sequence[socket.socket]) -> None:
        """Accepts what has come since the last tick. One at a time, which shares connections among several
        servers, a busy event loop would come to as seldom as it gets through all of its others: new clients
        would wait for seconds."""
        loop = asyncio.get_running_loop()
        for listener in listeners:
            with contextlib.suppress(OSError):  # none waits; of other errors asyncio tells
                for _ in range(_MOST_WAITING):
                    accepted, _ = listener.accept()
                    accepted.setblocking(False)
                    task = loop.create_task(loop.connect_accepted_socket(self._connection, accepted))
                    self._accepting.add(task)
                    task.add_done_callback(self._accepting.discard)

    def _connection(self) -> asyncio.Protocol:
        state = self.server_state, self.lifespan.state
        protocol: Any = self.config.http_protocol_class
        connection: asyncio.Protocol = protocol(self.config, *state)
        return connection

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to `Ending`."""
        yield
