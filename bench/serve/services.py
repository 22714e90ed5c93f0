"""Services as processes: start them, measure their CPU time, load them with wrk."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from lensbox.bench.measure import UnavailableError

_SCRIPT = Path(__file__).with_name("post.lua")
_SENDER_THREADS = 4
_START_TIMEOUT, _END_TIMEOUT = 180.0, 40.0  # seconds


class Load(NamedTuple):
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


class ServerProgram(NamedTuple):
    """A program that serves the artifact.

    arguments: of Python; the port follows. path: to POST the file `body` to, with its content type. check:
    takes the JSON of the first answer, and raises for a wrong one.
    """

    name: str
    arguments: tuple[str, ...]
    path: str
    body: Path
    content_type: str
    check: Callable[[Any], None]


@contextlib.contextmanager
def running(program: ServerProgram) -> Iterator[Callable[[int, int], Load]]:
    """Start a program on a free port, and end it after the block.

    The value takes connections and seconds, and sends the file again and again, with wrk. Raises
    UnavailableError, and what the program's check raises.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}{program.path}"
    command = [sys.executable, *program.arguments, str(port)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # one thread an inference, as in process
    # A pipe without a reader would block a service that writes much.
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True, env=environment
        )
        try:
            answer = _first_answer(program, url, process)
            if answer is None:
                said.seek(0)
                lines = said.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
                raise UnavailableError(f"the service did not start: {lines[-1]}")
            program.check(answer)
            yield partial(_load, program, url, process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_END_TIMEOUT)
            with contextlib.suppress(ProcessLookupError):  # nothing is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _first_answer(program: ServerProgram, url: str, process: "subprocess.Popen[bytes]") -> Any:
    """Send the file until it is answered with 200. Return None if the process ends or takes too long."""
    headers = {"Content-Type": program.content_type}
    request = urllib.request.Request(url, program.body.read_bytes(), headers)
    deadline = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
        time.sleep(0.2)
    return None


def _load(program: ServerProgram, url: str, process: int, connections: int, seconds: int) -> Load:
    wrk = shutil.which("wrk")
    if wrk is None:
        raise UnavailableError("wrk sends the requests and is not installed: apt-get install wrk")
    threads = min(connections, _SENDER_THREADS, os.cpu_count() or 1)
    command = [wrk, f"-t{threads}", f"-c{connections}", f"-d{seconds}s", "--timeout", "60s"]
    command += ["-s", str(_SCRIPT), url, "--", str(program.body), program.content_type]
    before = cpu_seconds(process)
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        raise UnavailableError(f"wrk failed: {run.stderr.strip() or run.stdout.strip()}")
    found = json.loads(run.stdout.splitlines()[-1])
    cpu = (cpu_seconds(process) - before) / max(found["answers"], 1)
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
