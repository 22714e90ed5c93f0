"""One child process of the supervisor: start it, watch its heartbeat, restart it with back-off."""

import logging
import math
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from lensbox.serve.observability.metrics import ServiceCounters

_log = logging.getLogger(__name__)

_STABLE = 30.0  # seconds of running after which earlier failures of a process do not count
_LONGEST_PAUSE = 10.0  # maximum seconds between restarts of a crashing process
_SHORT = 0.001  # seconds
_LONGEST_STEP = 0.5  # seconds of silence counted per check at most: this process may have been suspended


class Child:
    """A process and how to start it.

    slot: the process's name in the shared metrics. launch: starts it; returns its pid and our end of its
    pipe, see `forking.fork`. take: called with this object and each message of the process,
    but for None, a mere heartbeat. patience: maximum seconds without a message. model: of an engine. pid:
    None while there is no process. silence: seconds since the latest message; None before the first
    one. failures: failed starts and early exits in a row.
    """

    def __init__(
        self,
        name: str,
        slot: str,
        launch: Callable[[], "tuple[int, Connection[Any, Any]]"],
        take: Callable[["Child", Any], None],
        patience: float = math.inf,
        model: str = "",
    ) -> None:
        self.name, self.slot, self.launch, self.take = name, slot, launch, take
        self.patience, self.model = patience, model
        self.pid: int | None = None
        self.pipe: Connection[Any, Any] | None = None
        self._code: int | None = None
        self.failures = 0
        self.started = self.restart_at = -math.inf
        self.silence: float | None = None
        self.checked = 0.0

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process; None if it runs or was not started."""
        if self.pid is not None and self._code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if ended else None
        return self._code

    @property
    def is_running(self) -> bool:
        """True while there is a process."""
        return self.pid is not None and self.exit_code is None

    def keep_alive(self, counters: ServiceCounters) -> None:
        """Start the process if it is not running; else take its messages and check its heartbeat."""
        self.receive()
        if self.pid is not None:
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
                self._start()
            except OSError as error:  # memory, processes or files are short
                self._retry_later()
                _log.error("%s cannot be started; retrying: %s", self.name, error)

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

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the process, if it runs."""
        if self.pid is not None and self.is_running:
            os.kill(self.pid, number)

    def end(self) -> None:
        """Kill the process, wait for its end, and free all that belongs to it."""
        self.kill()
        while self.is_running:
            time.sleep(_SHORT)
        self._forget()

    def _start(self) -> None:
        self.pid, self.pipe = self.launch()
        self.silence, self.started = None, time.monotonic()

    def _retry_later(self) -> None:
        """Set the time of the next start, with exponential back-off."""
        self.failures += 1
        pause = 0.0 if self.failures <= 1 else min(_LONGEST_PAUSE, 2.0 ** (self.failures - 3))
        self.restart_at = time.monotonic() + pause
        self._forget()

    def _forget(self) -> None:
        self.pid = self._code = None
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
            self.kill()

    def _close_pipe(self) -> None:
        if self.pipe is not None:
            self.pipe.close()
            self.pipe = None


def described(code: int) -> str:
    """Return an exit code in words: `code 1`, or the name of the signal that ended the process."""
    return f"code {code}" if code >= 0 else signal.Signals(-code).name
