"""Start the processes of a service, restart processes that end, and shut all of them down in order.

multiprocessing's fork server makes the processes. The fork server has imported torch without using it, so a
new process starts in a fraction of a second and shares most of its memory.
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
from lensbox.serve.http.listener import url_of
from lensbox.serve.observability.logs import LogStyle
from lensbox.serve.observability.metrics import Restarts, join_shared_metrics, shared_metrics
from lensbox.serve.processes.child import PRELOADED, EngineAddress, engine_main, frontend_main, new_address
from lensbox.serve.processes.heartbeat import Heartbeat, Peers
from lensbox.serve.settings import Settings
from lensbox.serve.shutdown import Shutdown

_log = logging.getLogger(__name__)

_TICK = 0.1  # seconds between checks for signals
_STABLE = 30.0  # seconds of running after which earlier failures of a process do not count
SILENCE = 30.0  # seconds without a heartbeat after which a front end is killed
ENGINE_SILENCE = 10.0  # the same for an engine, after the time in which a stuck engine should have exited
_LONGEST_PAUSE = 10.0  # maximum seconds between restarts of a crashing process


class EngineStartError(LensboxError):
    """An engine cannot start; the message says why."""

    exit_code = ExitCode.UNUSABLE


@dataclass
class Child:
    """A process and how to start it.

    slot: the process's name in the shared metrics. patience: returns the maximum seconds without a heartbeat,
    given the seconds that loading took. reports: True if the process gets a `status` pipe. failures: failed
    starts and early exits in a row.
    """

    name: str
    slot: str
    target: Callable[..., None]
    arguments: tuple[Any, ...]
    heartbeat: Heartbeat
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

    def retry_later(self) -> None:
        """Set the time of the next start, with exponential back-off."""
        self.failures += 1
        pause = 0.0 if self.failures <= 1 else min(_LONGEST_PAUSE, 2.0 ** (self.failures - 3))
        self.process, self.ready, self.restart_at = None, False, time.monotonic() + pause


@shared_metrics()
def run(
    settings: Settings,
    devices: Sequence[str],
    listener: socket.socket,
    log: LogStyle,
    shutdown: Shutdown,
    keys: Sequence[bytes],
) -> Exception | None:
    """Serve on a bound socket. Return None after SIGINT or SIGTERM, or the error of an engine's start.

    keys: API keys, none to let everybody in.
    """
    join_shared_metrics("supervisor")
    restarts = Restarts()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    asked: list[bool] = []
    shutdown.ask = lambda: asked.append(True)
    url = url_of(listener, settings.scheme)
    _log.info("listening on %s, loading %s", url, settings.artifact)
    addresses = [new_address(device) for device in devices]
    engines = [_engine(number, settings, address, log) for number, address in enumerate(addresses)]
    heartbeats = [Heartbeat() for _ in range(settings.frontends or 1)]
    frontends = []
    for number, heartbeat in enumerate(heartbeats):
        slot, peers = f"frontend-{number}", Peers(heartbeats, number)
        arguments = (slot, log, settings, listener, addresses, keys, peers)
        name = f"front end {number + 1}"
        frontends.append(Child(name, slot, frontend_main, arguments, heartbeat, lambda _: SILENCE))
    children = [*engines, *frontends]
    said_ready = False
    try:
        while not asked:
            for child in children:
                keep_alive(child, context, restarts)
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


def _engine(number: int, settings: Settings, address: EngineAddress, log: LogStyle) -> Child:
    slot, heartbeat = f"engine-{number}", Heartbeat()
    return Child(
        f"the engine on {address.device}",
        slot,
        engine_main,
        (slot, log, settings, address, heartbeat),
        heartbeat,
        lambda loading: settings.call_limit(loading) + ENGINE_SILENCE,
        reports=True,
    )


def keep_alive(child: Child, context: Any, restarts: Restarts) -> None:
    """Start a process if it is not running; else check its heartbeat."""
    if child.status is not None:
        _read_status(child)
    if child.process is not None:
        code = child.process.exitcode
        if code is None:
            _check_heartbeat(child)
            return
        if time.monotonic() - child.started > _STABLE:
            child.failures = 0
        child.retry_later()
        restarts.process_ended(child.slot)
        _log.error("%s ended with %s and is restarted", child.name, _described(code))
    if time.monotonic() < child.restart_at:
        return
    try:
        _start(child, context)
    except Exception as error:  # many types: the fork server has ended, or memory is short
        child.retry_later()
        _log.error("%s cannot be started; retrying: %s", child.name, error or type(error).__name__)


def _start(child: Child, context: Any) -> None:
    """Start a process. Raise an error if the fork server has ended or ends meanwhile."""
    ensure_fork_server()
    arguments, status, sender = child.arguments, None, None
    if child.reports:
        status, sender = context.Pipe(duplex=False)
        arguments = (*arguments, sender)
    child.heartbeat.reset()
    process = context.Process(target=child.target, args=arguments, daemon=True)
    try:
        process.start()
    except BaseException:
        if status is not None:
            status.close()
        raise
    finally:
        if sender is not None:
            sender.close()
    child.process, child.status, child.started = process, status, time.monotonic()


def ensure_fork_server() -> None:
    """Start the fork server if it does not run. Block SIGINT, which the fork server ignores only later."""
    resource_tracker.ensure_running()  # the fork server needs it; starting it unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _check_heartbeat(child: Child) -> None:
    """Kill a process without a heartbeat, so that its clients see closed connections."""
    patience = child.patience(child.loading)
    if child.heartbeat.silence() > patience:
        _log.error("%s had no heartbeat for %g s and is killed", child.name, patience)
        child.heartbeat.reset()  # log the kill once, even if the process takes time to end
        child.process.kill()


def _read_status(child: Child) -> None:
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


def _end_in_order(frontends: Sequence[Child], is_ready: bool) -> None:
    """Drain the front ends, then return. The engines run until then, because accepted requests need them.

    `Shutdown` limits the time of the supervisor, and all child processes end with it.
    """
    running = [child.process for child in frontends if child.process is not None]
    for process in running:
        if is_ready:
            process.terminate()
        else:
            process.kill()
    for process in running:
        process.join()


def _described(code: int) -> str:
    return f"code {code}" if code >= 0 else signal.Signals(-code).name
