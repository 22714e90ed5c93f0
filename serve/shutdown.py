"""Signals of `lensbox serve`: SIGINT and SIGTERM end it, SIGHUP asks to load what the files hold now.

The handlers are set before the slow imports.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from lensbox.common.errors import ExitCode

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Shutdown:
    """Handle SIGINT, SIGTERM and SIGHUP. Make it in the main thread, once per process.

    SIGHUP sets what `takes_reload` returns, but for the SIGHUP of a closed terminal, which is like SIGTERM.
    The first of the other signals calls `ask`, which begins an orderly shutdown. While `ask` is None, the
    process exits with 0. A second signal ends the process with 128 + the signal's number, as shells do.
    `timeout` seconds after the first signal the kernel ends the process with SIGALRM, even if threads are
    stuck.
    """

    def __init__(self, timeout: float) -> None:
        self.ask: Callable[[], None] | None = None
        self._timeout = timeout
        self._asked = self._reloads = False
        self._has_terminal = os.isatty(0)
        signal.signal(signal.SIGHUP, self._note_reload)
        for number in (signal.SIGALRM, signal.SIGCHLD):  # a caller may have ignored them
            signal.signal(number, signal.SIG_DFL)
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def takes_reload(self) -> bool:
        """Return whether SIGHUP has come since the last call."""
        reloads, self._reloads = self._reloads, False
        return reloads

    def _note_reload(self, number: int, frame: FrameType | None) -> None:
        if self._has_terminal and not os.isatty(0):  # the terminal was closed
            self._handle(number, frame)
        else:
            self._reloads = True

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._asked:
            os._exit(128 + number)
        self._asked = True
        if self.ask is None:
            os._exit(ExitCode.GOOD)
        signal.setitimer(signal.ITIMER_REAL, self._timeout)
        self.ask()


def end_process(code: int) -> NoReturn:
    """End the process without waiting for its threads."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
