"""Starts the processes of a service, starts them again when they end, and ends them in order.

They come from multiprocessing's fork server: a process that has imported torch, and done nothing with it, so
that a new one is there in a fraction of a second and shares most of its memory.
"""

import logging
import math
import multiprocessing
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from lensbox.common.errors import ExitCode, LensboxError
from lensbox.serve.ending import Ending
from lensbox.serve.listener import url_of
from lensbox.serve.observability.logs import LogStyle
from lensbox.serve.observability.shared_metrics import SharedMetrics, shared_metrics
from lensbox.serve.processes import targets
from lensbox.serve.processes.addresses import EngineAddress, new_address
from lensbox.serve.processes.peers import Peers
from lensbox.serve.processes.pulse import Pulse
from lensbox.serve.security.access import Access
from lensbox.serve.settings import Settings

_log = logging.getLogger(__name__)

_TICK = 0.1  # seconds; signals are seen so often
_STABLE = 30.0  # seconds after which a process counts as sound again
_SILENCE = 30.0  # seconds after which a front end whose event loop stands still is killed
_ENGINE_SILENCE = 10.0  # the same of an engine, once it should have ended itself
_LONGEST_PAUSE = 10.0  # seconds between starts of one that never is


class EngineStartError(LensboxError):
    """An engine cannot start; the message says why."""

    exit_code = ExitCode.UNUSABLE


@dataclass
class _Child:
    """A process, and how to start it. failures: starts in a row that came to nothing; patience: seconds in
    which its pulse may stand still, for one that took so long until it was ready."""

    name: str
    target: Callable[..., None]
    arguments: tuple[Any, ...]
    pulse: Pulse
    patience: Callable[[float], float]
    reports: bool = False
    process: Any = None
    status: "Connection[Any, Any] | None" = None
    ready: bool = False
    was_ready: bool = False
    failures: int = 0
    started: float = -math.inf
    loading: float = 0.0
    restart_at: float = -math.inf


def run(
    settings: Settings,
    devices: Sequence[str],
    listener: socket.socket,
    log: LogStyle,
    ending: Ending,
    access: Access,
) -> Exception | None:
    """Serves on a bound socket. Returns None after SIGINT or SIGTERM, else why an engine could not start."""
    if access.key_file is not None:  # for front ends that come later; it speaks for all of them
        access.key_file.watch()
    with shared_metrics() as metrics:
        return _run(settings, devices, listener, log, ending, access, metrics)


def _run(
    settings: Settings,
    devices: Sequence[str],
    listener: socket.socket,
    log: LogStyle,
    ending: Ending,
    access: Access,
    metrics: SharedMetrics,
) -> Exception | None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(targets.PRELOADED))
    _start_fork_server()
    asked: list[bool] = []
    ending.ask = lambda: asked.append(True)
    url = url_of(listener, settings.scheme)
    _log.info("listening on %s, loading %s", url, settings.artifact)
    addresses = [new_address(device) for device in devices]
    engines = [_engine(settings, address, log) for address in addresses]
    common = settings, listener, addresses, log, access
    pulses = [Pulse() for _ in range(settings.frontends or 1)]
    frontends = [
        _Child(
            f"front end {number + 1}",
            targets.frontend,
            (*common, Peers(pulses, number)),
            pulse,
            lambda _: _SILENCE,
        )
        for number, pulse in enumerate(pulses)
    ]
    children = [*engines, *frontends]
    said_ready = False
    try:
        while not asked:
            for child in children:
                _keep_alive(child, context, metrics)
            if not said_ready and all(child.ready for child in engines):
                said_ready = True
                _log.info("ready: %s on %s", settings.artifact, url)
            sentinels = [child.process.sentinel for child in children if child.process is not None]
            wait([*sentinels, *(child.status for child in engines if child.status is not None)], _TICK)
        _end_in_order(frontends, said_ready)
    except EngineStartError as error:
        return error
    finally:
        for child in children:
            if child.process is not None:
                child.process.kill()
    return None


def _engine(settings: Settings, address: EngineAddress, log: LogStyle) -> _Child:
    pulse = Pulse()
    return _Child(
        f"the engine on {address.device}",
        targets.engine,
        (settings, address, log, pulse),
        pulse,
        lambda loading: settings.call_limit(loading) + _ENGINE_SILENCE,
        reports=True,
    )


def _start_fork_server() -> None:
    """Starts it with SIGINT blocked: Ctrl+C comes to it as well, and would end it until it ignores that."""
    resource_tracker.ensure_running()  # which the fork server needs, and which leaves SIGINT unblocked
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _keep_alive(child: _Child, context: Any, metrics: SharedMetrics) -> None:
    """Starts a process that is not there, and hears what it reports."""
    if child.status is not None:
        _hear(child)
    if child.process is not None:
        code = child.process.exitcode
        if code is None:
            _check_pulse(child)
            return
        long = time.monotonic() - child.started > _STABLE
        child.failures = 0 if long else child.failures + 1
        pause = 0.0 if child.failures <= 1 else min(_LONGEST_PAUSE, 2.0 ** (child.failures - 3))
        metrics.process_ended(child.process.pid)
        child.process, child.ready, child.restart_at = None, False, time.monotonic() + pause
        _log.error("%s (process ended with %s) is started again", child.name, _why(code))
    if time.monotonic() < child.restart_at:
        return
    arguments, kept = child.arguments, None
    if child.reports:
        child.status, kept = context.Pipe(duplex=False)
        arguments = (*arguments, kept)
    child.pulse.reset()
    process = context.Process(target=child.target, args=arguments, daemon=True)
    process.start()
    child.process = process
    child.started = time.monotonic()
    if kept is not None:
        kept.close()


def _check_pulse(child: _Child) -> None:
    """Kills a process that takes connections along and answers none of them: its clients then see that at
    least."""
    patience = child.patience(child.loading)
    if child.pulse.silence() > patience:
        _log.error("%s has not moved for %g s and is killed", child.name, patience)
        child.pulse.reset()  # this is said once, though it may take its time to end
        child.process.kill()


def _hear(child: _Child) -> None:
    assert child.status is not None
    if not child.status.poll():
        return
    try:
        failure = child.status.recv()
    except (EOFError, OSError):
        failure = None
    else:
        if failure is None:
            child.ready = child.was_ready = True
            child.loading = time.monotonic() - child.started
        elif not child.was_ready:
            raise EngineStartError(failure)
        else:
            _log.error("%s cannot start: %s", child.name, failure)
    child.status.close()
    child.status = None


def _end_in_order(frontends: Sequence[_Child], is_ready: bool) -> None:
    """Front ends answer what they have accepted, and then end: engines are needed until then.

    What does not end is ended by the watchdog of this process, and with it all of them.
    """
    running = [child.process for child in frontends if child.process is not None]
    for process in running:
        if is_ready:
            process.terminate()
        else:
            process.kill()
    for process in running:
        process.join()


def _why(code: int) -> str:
    return f"code {code}" if code >= 0 else signal.Signals(-code).name
