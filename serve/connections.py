"""The connections of clients: how many there may be, and which give way to new ones."""

import asyncio
import errno
import logging
import resource
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import get_remote_addr

from lensbox.serve.early_protocol import Refusal, early_protocol
from lensbox.serve.security.client_address import network_of
from lensbox.serve.security.handshake import handshaking_protocol
from lensbox.serve.slow_clients import Patience, is_idle, patient_protocol
from lensbox.serve.upgrade_offers import offers_left_alone
from lensbox.serve.whole_answers import whole_answers_protocol

_log = logging.getLogger(__name__)

_BURST = 64  # connections accepted at once
_OTHER_FILES = 64  # what else the process has open: libraries, devices, pipes
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_WARNING_INTERVAL = 60.0  # seconds
_PATIENCE = Patience(10.0, 30.0, 60.0)


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


def connection_class(
    limit: int,
    limit_of_a_client: int | None = None,
    patience: Patience = _PATIENCE,
    on_closed: Callable[[str], None] = lambda reason: None,
    refusal: Refusal | None = None,
) -> Any:
    """uvicorn's HTTP/1.1 connections, of which at most `limit` stay open, and `limit_of_a_client` of one
    client, an IPv4 address or an IPv6 network: the longest idle one is closed, of the client that has most of
    them. One in its TLS handshake is idle.

    on_closed: called with the reason when a connection is closed for one of these limits: "crowded",
    "client_limit", or what `patient_protocol` says. refusal: as `early_protocol` asks for it.
    """
    # In the order in which they were last busy. A dict, because it keeps that order and removes in O(1).
    connections: dict[Any, None] = {}
    clients: Counter[str] = Counter()
    reasons = {
        "crowded": _Warning("more than %d connections: those that have been idle longest are closed", limit),
        "client_limit": _Warning(
            "more than %s connections of a client: its own that have been idle longest are closed",
            limit_of_a_client,
        ),
        "slow_request": _Warning(
            "a request's head took longer than %g s, or what came of a body behind its answer longer than "
            "%g s: it is given up",
            *(patience.head, patience.body),
        ),
        "slow_reader": _Warning("an answer was not taken within %g s: it is given up", patience.answer),
    }

    def report(reason: str) -> None:
        reasons[reason].log()
        on_closed(reason)

    early = early_protocol(whole_answers_protocol(HttpToolsProtocol), refusal)
    http = offers_left_alone(patient_protocol(early, patience, report))

    class Connection(handshaking_protocol(http, patience.head)):  # type: ignore[misc]
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            client = get_remote_addr(transport)
            self._network = network_of(client[0]) if client else ""
            connections[self] = None
            clients[self._network] += 1
            if limit_of_a_client is not None and clients[self._network] > limit_of_a_client:
                self._make_room("client_limit", self._network)
            elif len(connections) > limit:
                self._make_room("crowded", clients.most_common(1)[0][0])

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self in connections:
                connections[self] = connections.pop(self)

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget()
            super().connection_lost(exc)

        def _make_room(self, reason: str, network: str) -> None:
            """Closes the longest idle connection, rather of `network`. At least the newest one is idle."""
            report(reason)
            idle = [other for other in connections if is_idle(other)]
            chosen = next((other for other in idle if other._network == network), idle[0])
            chosen._forget()
            chosen.shutdown()

        def _forget(self) -> None:
            if self in connections:
                del connections[self]
                clients[self._network] -= 1
                if not clients[self._network]:
                    del clients[self._network]

    return Connection


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
