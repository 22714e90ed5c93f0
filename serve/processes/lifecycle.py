"""One child process of the supervisor: start it, watch its heartbeat, restart it with back-off.

multiprocessing's fork server makes the processes. The fork server has imported torch without using it, so a
new process starts in a fraction of a second and shares most of its memory.
"""

import logging
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from lensbox.serve.observability.metrics import ServiceCounters
from lensbox.serve.processes.child import PRELOADED, SUPERVISOR

_log = logging.getLogger(__name__)

_STABLE = 30.0  # seconds of running after which earlier failures of a process do not count
_LONGEST_PAUSE = 10.0  # maximum seconds between restarts of a crashing process
_LONGEST_STEP = 0.5  # seconds of silence counted per check at most: this process may have been suspended
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(list(PRELOADED))


@dataclass
class Child:
    """A process and how to start it.

    slot: the process's name in the shared metrics. arguments: returns the arguments of `target` that stand
    between slot and pipe. take: called with this object and each message of the process, but for None, a mere
    heartbeat. patience: maximum seconds without a message. model: of an engine. silence: seconds since the
    latest message; None before the first one. failures: failed starts and early exits in a row.
    """

    name: str
    slot: str
    target: Callable[..., None]
    arguments: Callable[[], tuple[Any, ...]]
    take: Callable[["Child", Any], None]
    patience: float = math.inf
    model: str = ""
    process: Any = None
    pipe: "Connection[Any, Any] | None" = None
    failures: int = 0
    started: float = -math.inf
    silence: float | None = None
    checked: float = 0.0
    restart_at: float = -math.inf

    @property
    def waits_for(self) -> list[Any]:
        """What `multiprocessing.connection.wait` takes: the pipe, and the end of the process."""
        return [
            *([self.process.sentinel] if self.process is not None else []),
            *([self.pipe] if self.pipe is not None else []),
        ]

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process; None if it runs or was not started."""
        return None if self.process is None else self.process.exitcode

    def keep_alive(self, counters: ServiceCounters) -> None:
        """Start the process if it is not running; else take its messages and check its heartbeat."""
        self.receive()
        if self.process is not None:
            code = self.exit_code
            if code is None:
                self._check_heartbeat()
                return
            if time.monotonic() - self.started > _STABLE:
                self.failures = 0
            self._retry_later()
            counters.process_ended(self.slot, self.model)
            _log.error("%s ended with %s and is restarted", self.name, described(code))
        if time.monotonic() >= self.restart_at:
            try:
                self.start()
            except Exception as error:  # many types: the fork server has ended, or memory is short
                self._retry_later()
                _log.error("%s cannot be started; retrying: %s", self.name, error or type(error).__name__)

    def start(self) -> None:
        """Start the process. Raise an error if the fork server has ended or ends meanwhile."""
        ensure_fork_server()
        own, other = CONTEXT.Pipe()
        arguments = self.slot, *self.arguments(), other
        process: Any = CONTEXT.Process(target=self.target, args=arguments, daemon=True)
        try:
            process.start()
        except BaseException:
            own.close()
            raise
        finally:
            other.close()
        self._close_pipe()
        self.process, self.pipe, self.silence, self.started = process, own, None, time.monotonic()

    def receive(self) -> None:
        """Take the messages of the process."""
        while self.pipe is not None:
            try:
                if not self.pipe.poll():
                    return
                message = self.pipe.recv()
            except (EOFError, OSError):
                self._close_pipe()
                return
            self.silence = 0.0
            if message is not None:
                self.take(self, message)

    def send(self, message: Any) -> None:
        """Send a message, unless the process is gone."""
        if self.pipe is not None:
            try:
                self.pipe.send(message)
            except OSError:
                self._close_pipe()

    def kill(self) -> None:
        """Send SIGKILL to the process, if it runs."""
        if self.process is not None:
            self.process.kill()

    def end(self) -> None:
        """Kill the process, wait for its end, and free all that belongs to it."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process.close()
            self.process = None
        self._close_pipe()

    def _retry_later(self) -> None:
        """Set the time of the next start, with exponential back-off."""
        self.failures += 1
        pause = 0.0 if self.failures <= 1 else min(_LONGEST_PAUSE, 2.0 ** (self.failures - 3))
        self.process, self.restart_at = None, time.monotonic() + pause
        self._close_pipe()

    def _check_heartbeat(self) -> None:
        """Kill a process without a heartbeat, so that its clients see closed connections."""
        now = time.monotonic()
        step, self.checked = min(now - self.checked, _LONGEST_STEP), now
        if self.silence is None:
            return
        self.silence += step
        if self.silence > self.patience:
            _log.error("%s had no heartbeat for %g s and is killed", self.name, self.patience)
            self.silence = None  # log the kill once, even if the process takes time to end
            self.process.kill()

    def _close_pipe(self) -> None:
        if self.pipe is not None:
            self.pipe.close()
            self.pipe = None


def ensure_fork_server() -> None:
    """Start the fork server if it does not run. Block the signals that the fork server ignores only later."""
    resource_tracker.ensure_running()  # the fork server needs it; starting it unblocks SIGINT
    os.environ[SUPERVISOR] = str(os.getpid())
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def described(code: int) -> str:
    """Return an exit code in words: `code 1`, or the name of the signal that ended the process."""
    return f"code {code}" if code >= 0 else signal.Signals(-code).name
