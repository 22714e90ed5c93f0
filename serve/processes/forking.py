"""Start the processes of a service: the supervisor, which has imported torch without using it, forks them.

A process then starts in milliseconds and shares most of its memory. A fork copies neither the threads of the
supervisor nor what a GPU's driver or OpenMP has begun there. So the supervisor computes nothing with torch,
and its threads hold no lock that a new process needs: the log's thread writes without one, and the threads
that read files are in calls of the system whenever the main thread runs.
"""

import ctypes
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from lensbox.serve.observability.logs import start_log
from lensbox.serve.observability.metrics import join_shared_metrics
from lensbox.serve.settings import Settings
from lensbox.serve.shutdown import end_process

if TYPE_CHECKING:
    Pipe = Connection[Any, Any]

_log = logging.getLogger(__name__)

_SET_PDEATHSIG = 1  # of Linux' prctl
# The handlers of the supervisor are no use in other processes, which are signalled by it alone.
_SIGNALS = {signal.SIGINT: signal.SIG_IGN, signal.SIGHUP: signal.SIG_IGN, signal.SIGTERM: signal.SIG_DFL}


def fork(
    name: str, slot: str, settings: Settings, main: "Callable[[Pipe], None]", *files: int
) -> "tuple[int, Pipe]":
    """Start a process that calls `main` with its end of a pipe. Return its pid and our end.

    The process ends with this thread. name: in ps and top, at most 15 characters. slot: see
    `join_shared_metrics`. files: all that the process keeps open of ours, beside stdout and stderr. Raise
    OSError.
    """
    own, other = multiprocessing.Pipe()
    supervisor = os.getpid()
    with other:
        # A signal to the new process must not run our handler there.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            pid = os.fork()
            if not pid:
                _become(supervisor, name, slot, settings, lambda: main(other), {other.fileno(), *files})
        except OSError:
            own.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return pid, own


def _become(
    supervisor: int, name: str, slot: str, settings: Settings, main: Callable[[], None], files: set[int]
) -> NoReturn:
    try:
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:  # it ended before the call
            os._exit(1)
        os.setsid()  # Ctrl+C and SIGHUP of a terminal reach the supervisor alone
        for number, action in _SIGNALS.items():
            signal.signal(number, action)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        start_log(settings.log_level, settings.log_format)
        # Replaced, not closed: objects of the supervisor may still close their numbers.
        nothing = os.open(os.devnull, os.O_RDWR)
        for file in {0, *(int(file.name) for file in Path("/proc/self/fd").iterdir())} - {1, 2} - files:
            os.dup2(nothing, file)
        Path("/proc/self/comm").write_text(name)
        join_shared_metrics(slot)
        main()
    except BaseException:
        _log.critical("%s ends", name, exc_info=True)
    finally:
        end_process(1)
