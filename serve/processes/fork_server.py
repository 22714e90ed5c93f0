"""The fork server: a process that has imported torch without using it, and forks all other processes.

A new process starts in a fraction of a second and shares most of its memory. The fork server forks a process
in between, which ends at once, so that the supervisor adopts the new process. Therefore the processes go on
when the fork server is killed, and the kernel ends them with the supervisor.
"""

import contextlib
import ctypes
import gc
import importlib
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lensbox.serve.observability.logs import start_log
from lensbox.serve.observability.metrics import join_shared_metrics
from lensbox.serve.processes.lifecycle import Child
from lensbox.serve.settings import Settings

if TYPE_CHECKING:
    Pipe = Connection[Any, Any]

# The module of each process, by its name in ps and top, of at most 15 characters.
MODULES = {
    "lensbox-engine": "lensbox.serve.processes.engine_process",
    "lensbox-http": "lensbox.serve.processes.frontend_process",
}
PRELOADED = tuple(MODULES.values())  # that the fork server imports, so that a child need not
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36  # of Linux' prctl
_PATIENCE = 30.0  # seconds for a fork
_TRIES, _PAUSE = 50, 0.1  # to remove a folder while the processes that write there end; seconds


class ForkServer(Child):
    """The supervisor's side. folders: to remove if the supervisor is killed."""

    def __init__(self, *folders: str) -> None:
        super().__init__("the fork server", "fork-server", self._launch, self._take_ready)
        self._folders = folders
        self._is_ready = False
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)

    def fork(
        self, name: str, slot: str, settings: Settings, arguments: tuple[Any, ...], *files: int
    ) -> "tuple[int, Pipe] | None":
        """Start a process, which calls `main(settings, *arguments, *files, pipe)` of its module.

        name: see `MODULES`. slot: see `join_shared_metrics`. Return its pid and our end of the pipe;
        None while the fork server starts. Raise OSError or EOFError if it ends meanwhile.
        """
        if not self._is_ready or self.pipe is None:
            return None
        own, other = multiprocessing.Pipe()
        try:
            with other:
                self.pipe.send(len(files) + 1)
                with socket.socket(fileno=os.dup(self.pipe.fileno())) as channel:
                    socket.send_fds(channel, [b"f"], [other.fileno(), *files])
                if not self.pipe.poll(_PATIENCE):
                    self.kill()
                    raise OSError(f"the fork server has not answered for {_PATIENCE:g} s and is killed")
                pid: int = self.pipe.recv()
            if not pid:
                raise OSError("the fork server cannot fork")
            own.send((name, slot, settings, arguments))
        except BaseException:
            own.close()
            raise
        return pid, own

    def _launch(self) -> "tuple[int, Pipe]":
        self._is_ready = False
        own, other = multiprocessing.Pipe()
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main"
        command = [sys.executable, "-c", f"{code}({os.getpid()}, {PRELOADED!r}, {self._folders!r})"]
        with other:
            as_input = [(os.POSIX_SPAWN_DUP2, other.fileno(), 0)]
            # A session of its own: Ctrl+C and SIGHUP of a terminal reach the supervisor alone.
            pid = os.posix_spawn(command[0], command, os.environ, file_actions=as_input, setsid=True)
        return pid, own

    def _take_ready(self, child: Child, message: bool) -> None:
        self._is_ready = message


# --- the fork server's side ---


def main(supervisor: int, preloaded: Sequence[str], folders: Sequence[str]) -> None:
    """Fork processes until the supervisor has ended; then remove its folders."""
    Path("/proc/self/comm").write_text("lensbox-fork")
    for number in (signal.SIGINT, signal.SIGHUP):  # the supervisor handles them
        signal.signal(number, signal.SIG_IGN)
    pipe: Pipe = Connection(os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    gc.disable()  # runs during an import find nothing; later runs would copy the memory that processes share
    for name in preloaded:
        with contextlib.suppress(Exception):  # the first process that imports the module says why
            importlib.import_module(name)
    gc.freeze()  # without a run before, which takes 0.2 s and finds a megabyte
    gc.enable()
    with contextlib.suppress(EOFError, OSError):
        pipe.send(True)
        while True:
            count = pipe.recv()
            with socket.socket(fileno=os.dup(pipe.fileno())) as channel:
                files = socket.recv_fds(channel, 1, count)[1]
            pid = 0
            with contextlib.suppress(OSError):  # memory or processes are short
                pid = _fork(supervisor, pipe, files)
            pipe.send(pid)
            for file in files:
                os.close(file)
    for _ in range(_TRIES):
        if os.getppid() != supervisor:  # else it has not ended yet
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)
            if not any(map(os.path.exists, folders)):
                return
        time.sleep(_PAUSE)


def _fork(supervisor: int, pipe: "Pipe", files: Sequence[int]) -> int:
    """Return the pid of a new process, which the supervisor has adopted; 0 if there is none.

    files: our end of its pipe, and what it needs beside its arguments.
    """
    read, write = os.pipe()
    if child := os.fork():
        os.close(write)
        os.waitpid(child, 0)
        pid = int.from_bytes(os.read(read, 4), "little")
        os.close(read)
        return pid
    try:
        between = os.getpid()
        if pid := os.fork():
            os.write(write, pid.to_bytes(4, "little"))
            os._exit(0)
        os.close(read)
        os.close(write)
        pipe.close()
        while os.getppid() == between:
            time.sleep(0.001)
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == supervisor:  # else it has ended before the call
            own: Pipe = Connection(files[0])
            name, slot, settings, arguments = own.recv()
            Path("/proc/self/comm").write_text(name)
            start_log(settings.log_level, settings.log_format)
            join_shared_metrics(slot)
            importlib.import_module(MODULES[name]).main(settings, *arguments, *files[1:], own)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
