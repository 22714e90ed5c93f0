"""How `lensbox serve` ends. It answers SIGINT and SIGTERM from before its slow imports on."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from lensbox.common.errors import ExitCode
from lensbox.serve import watchdog

_log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Ending:
    """Takes SIGINT and SIGTERM over. For the main thread, once in a process.

    The first calls `ask`, which is to bring about an orderly end; while `ask` is None nothing is in progress,
    and the process ends with 0. A second ends the process with 128 + its number, the shells' convention. A
    process that is still there `timeout` seconds after the first, or a second after the second, is killed.
    """

    def __init__(self, timeout: float) -> None:
        self.ask: Callable[[], None] | None = None
        self._asked = False
        self._watchdog = _start_watchdog(timeout)
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._asked:
            os._exit(128 + number)
        self._asked = True
        if self.ask is None:
            os._exit(ExitCode.GOOD)
        self.ask()


def end_process(code: int) -> NoReturn:
    """Ends the process without waiting for its threads."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _start_watchdog(timeout: float) -> "subprocess.Popen[bytes] | None":
    """A process of its own that gets the number of every signal from Python's C handler, by a pipe.

    Handlers written in Python, and every thread, need the GIL, and torch.jit.load keeps it while it runs the
    code of an artifact. Code that loops there leaves nobody in this process who could end it.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", watchdog.__file__, str(os.getpid()), str(timeout)],
            stdin=reader,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl+C is for the service alone
        )
    except OSError as error:
        _log.warning("nothing will end the service if it does not end itself: %s", error)
        os.close(writer)
        return None
    finally:
        os.close(reader)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return process
