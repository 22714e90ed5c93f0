"""The connections of clients: how many there may be, and which give way to new ones."""

import asyncio
import errno
import logging
import resource
import time
from typing import Any, NamedTuple

try:  # takes 0.15 ms of CPU time a request less
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    _Protocol: Any = HttpToolsProtocol
except ImportError:
    from uvicorn.protocols.http.h11_impl import H11Protocol

    _Protocol = H11Protocol

_log = logging.getLogger(__name__)

_BURST = 64  # connections accepted at once
_OTHER_FILES = 64  # what else the process has open: libraries, devices, pipes
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_WARNING_INTERVAL = 60.0  # seconds


class Capacity(NamedTuple):
    """connections: open at a time; burst: accepted at once."""

    connections: int
    burst: int


def capacity(max_connections: int) -> Capacity:
    """What the limit on open files allows, `max_connections` at most. Raises that limit if it may."""
    # asyncio accepts two bursts before the first of these connections is counted.
    files = allow_files(max_connections + 2 * _BURST + _OTHER_FILES) - _OTHER_FILES
    burst = min(_BURST, max(1, files // 8))
    connections = min(max_connections, max(1, files - 2 * burst))
    if connections < max_connections:
        _log.warning(
            "the limit on open files (ulimit -n) allows %d connections, not %d", connections, max_connections
        )
    return Capacity(connections, burst)


def allow_files(wanted: int) -> int:
    """How many files the process may open, at most `wanted`: its own limit is raised as far as it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < wanted:
        soft = wanted if hard == unlimited else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == unlimited else min(wanted, soft)


def connection_class(limit: int) -> Any:
    """uvicorn's HTTP/1.1 connections, of which at most `limit` stay open: the longest idle one is closed.

    By httptools where it is installed, else by h11.
    """
    # In the order in which they were last busy. A dict, because it keeps that order and removes in O(1).
    connections: dict[Any, None] = {}
    warning = _Warning("more than %d connections: those that have been idle longest are closed", limit)

    class Connection(_Protocol):  # type: ignore[misc]
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            connections[self] = None
            if len(connections) > limit:
                warning.log()
                idle = next(connection for connection in connections if _is_idle(connection))
                del connections[idle]
                idle.shutdown()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self in connections:
                connections[self] = connections.pop(self)

        def connection_lost(self, exc: Exception | None) -> None:
            connections.pop(self, None)
            super().connection_lost(exc)

    return Connection


def _is_idle(connection: Any) -> bool:
    """Whether no request is in progress: at least the newest connection is idle."""
    cycle = connection.cycle
    return cycle is None or bool(cycle.response_complete)


def warn_when_out_of_files(loop: asyncio.AbstractEventLoop) -> None:
    """Makes `loop` warn once of connections that it cannot accept; asyncio writes an error for each try."""
    warning = _Warning("connections cannot be accepted for want of open files (ulimit -n) or memory")

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _OUT_OF_FILES and "socket" in context:
            warning.log()
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


class _Warning:
    """A warning that is written at most once a minute."""

    def __init__(self, message: str, *arguments: object) -> None:
        self._message = message
        self._arguments = arguments
        self._next = -float("inf")

    def log(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _WARNING_INTERVAL
            _log.warning(self._message, *self._arguments)
