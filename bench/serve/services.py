"""Services as processes: start them, measure their CPU time, load them with wrk."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lensbox.common.errors import ExitCode, LensboxError

_SCRIPT = Path(__file__).with_name("post.lua")
_SENDER_THREADS = 4
_START_TIMEOUT = 180.0  # seconds
_END_TIMEOUT = 40.0


class PeerError(LensboxError, RuntimeError):
    """A service did not start, or a program that the benchmark needs is missing."""

    exit_code = ExitCode.UNUSABLE


class ServerProgram(NamedTuple):
    """A program that serves the artifact.

    command: without the port, its last argument. ready: path that answers 200 once it serves. detect: path
    to POST the file `body` to, with its content type.
    """

    name: str
    command: list[str]
    ready: str
    detect: str
    body: Path
    content_type: str


@dataclass(frozen=True)
class Load:
    """One load of one service.

    rate: images per second that were answered with 200; a request has one image. p50, p99: seconds of all
    answers. cpu: seconds of CPU time per image, of all processes of the service. failed: requests without an
    answer, or with another one.
    """

    rate: float
    p50: float
    p99: float
    cpu: float
    failed: int = 0


@dataclass(frozen=True)
class RunningServer:
    """A running peer: its port, and its process, the ancestor of its others."""

    peer: ServerProgram
    port: int
    process: int

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.peer.detect}"

    def ask(self) -> Any:
        """Send the file once; return the JSON of the answer."""
        headers = {"Content-Type": self.peer.content_type}
        request = urllib.request.Request(self._url, self.peer.body.read_bytes(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def load(self, connections: int, seconds: int) -> Load:
        """Send the file again and again over so many connections, with wrk. Raise PeerError."""
        program = shutil.which("wrk")
        if program is None:
            raise PeerError("wrk sends the requests and is not installed: apt-get install wrk")
        threads = min(connections, _SENDER_THREADS, os.cpu_count() or 1)
        command = [program, f"-t{threads}", f"-c{connections}", f"-d{seconds}s", "--timeout", "60s"]
        command += ["-s", str(_SCRIPT), self._url, "--", str(self.peer.body), self.peer.content_type]
        before = cpu_seconds(self.process)
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            raise PeerError(f"wrk failed: {run.stderr.strip() or run.stdout.strip()}")
        found = json.loads(run.stdout.splitlines()[-1])
        cpu = (cpu_seconds(self.process) - before) / max(found["answers"], 1)
        rate = (found["answers"] - found["rejected"]) / found["seconds"]
        return Load(rate, found["p50"], found["p99"], cpu, found["rejected"] + found["broken"])


def cpu_seconds(ancestor: int) -> float:
    """Return the CPU time of a living process and of its descendants."""
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended
            fields = stat.read_text().rpartition(")")[2].split()  # the name before them may have spaces
            process = int(stat.parent.name)
            parents[process], ticks[process] = int(fields[1]), int(fields[11]) + int(fields[12])
    family = {ancestor}
    while grown := {child for child, parent in parents.items() if parent in family} - family:
        family |= grown
    return sum(ticks.get(process, 0) for process in family) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(peer: ServerProgram) -> Iterator[RunningServer]:
    """Start a peer on a free port, wait until it is ready, and end it after the block. Raise PeerError."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # A pipe without a reader would block a service that writes much.
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*peer.command, str(port)], stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
        )
        try:
            if not _is_ready(process, f"http://127.0.0.1:{port}{peer.ready}"):
                said.seek(0)
                lines = said.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
                raise PeerError(f"the service did not start: {lines[-1]}")
            yield RunningServer(peer, port, process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_END_TIMEOUT)
            with contextlib.suppress(ProcessLookupError):  # nothing is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _is_ready(process: "subprocess.Popen[bytes]", url: str) -> bool:
    """Wait until the service answers `url`. Return False if it ended before, or takes too long."""
    deadline = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            if answer.status == 200:
                return True
        time.sleep(0.2)
    return False
