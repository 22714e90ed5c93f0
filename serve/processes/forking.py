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
from typing import Any, NoReturn

from lensbox.serve.observability.metrics import join_shared_metrics
from lensbox.serve.shutdown import end_process

_log = logging.getLogger(__name__)

_SET_PDEATHSIG = 1  # of Linux' prctl
# The supervisor handles these signals, and ends the other processes by SIGTERM or SIGKILL.
_SIGNALS = {signal.SIGINT: signal.SIG_IGN, signal.SIGHUP: signal.SIG_IGN, signal.SIGTERM: signal.SIG_DFL}


def fork(
    name: str, slot: str, main: "Callable[[Connection[Any, Any]], None]", *files: int
) -> "tuple[int, Connection[Any, Any]]":
    """Start a process that calls `main` with its end of a pipe. Return its pid and our end.

    The process ends with this thread. name: in ps and top, at most 15 characters. slot: see
    `join_shared_metrics`. files: the open files that it keeps, beside stdout and stderr. Raise OSError.
    """
    own, other = multiprocessing.Pipe()
    supervisor = os.getpid()
    # A signal to the new process must not run our handler there.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        with other:
            if pid := os.fork():
                return pid, own
            _become(name, slot, supervisor, {1, 2, other.fileno(), *files}, lambda: main(other))
    except OSError:
        own.close()
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _become(name: str, slot: str, supervisor: int, files: set[int], main: Callable[[], None]) -> NoReturn:
    """Make this process, a copy of the supervisor, a process of its own; call `main`; exit with 1."""
    try:
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == supervisor:  # else it has ended before the call
            os.setsid()  # Ctrl+C and SIGHUP of a terminal reach the supervisor alone
            for number, action in _SIGNALS.items():
                signal.signal(number, action)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            # Replaced, not closed: objects of the supervisor may still close their numbers.
            nothing = os.open(os.devnull, os.O_RDWR)
            for file in {0, *(int(file.name) for file in Path("/proc/self/fd").iterdir())} - files:
                os.dup2(nothing, file)
            Path("/proc/self/comm").write_text(name)
            join_shared_metrics(slot)
            main()
    except BaseException:
        _log.critical("%s ends", name, exc_info=True)
    finally:
        end_process(1)
