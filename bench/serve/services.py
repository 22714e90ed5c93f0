"""Services and senders as processes, and the cores that each may use."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from lensbox.bench.serve.load import Answers, Load
from lensbox.common.errors import ExitCode, LensboxError

_CORES_TO_SHARE = 8  # with fewer, senders and services use the same
_SENDERS_SHARE = 4  # one core of so many
_START_TIMEOUT = 180.0  # seconds
_END_TIMEOUT = 40.0


class NotReadyError(LensboxError, RuntimeError):
    """A service did not start; the message has the last line of its stderr."""

    exit_code = ExitCode.UNUSABLE


@dataclass(frozen=True)
class Service:
    """A running service: its port, and the process that was started."""

    port: int
    process: int

    def memory(self) -> int:
        """Return the proportional set size of its processes, in bytes."""
        return sum(_proportional_size(pid) for pid in [self.process, *descendants(self.process)])

    def cpu_seconds(self) -> float:
        """Return the CPU time of its living processes."""
        ticks = sum(_cpu_ticks(pid) for pid in [self.process, *descendants(self.process)])
        return ticks / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and theirs."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(text) for task in tasks for text in (task / "children").read_text().split()]
    except OSError:  # it has ended
        return []
    return [*children, *(further for child in children for further in descendants(child))]


@contextlib.contextmanager
def running(command: Sequence[str], ready_path: str) -> Iterator[Service]:
    """Start the command with a free port as last argument, wait until GET `ready_path` answers 200, and end
    it after the block. Raises NotReadyError."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # A pipe without a reader would block a service that writes much.
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*command, str(port)], stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
        )
        try:
            _wait_until_ready(process, f"http://127.0.0.1:{port}{ready_path}", said)
            yield Service(port, process.pid)
        finally:
            left = descendants(process.pid)
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_END_TIMEOUT)
            for pid in [process.pid, *left]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()


def load_cores() -> list[int]:
    """Return the cores for the senders: the last quarter of 8 or more; none of fewer."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0))
    return cores[-(len(cores) // _SENDERS_SHARE) :] if len(cores) >= _CORES_TO_SHARE else []


@contextlib.contextmanager
def without(cores: list[int]) -> Iterator[None]:
    """Keep this process, and those that it starts, on the other cores."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before - set(cores))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def apply_load(load: Load, cores: Sequence[int] = ()) -> Answers:
    """Share a load between processes, one on each of these cores, or one without any; merge the answers."""
    processes = min(len(cores) or 1, load.connections)
    whole, more = divmod(load.connections, processes)
    shares = [
        asdict(load)
        | {
            "connections": whole + (index < more),
            "rate": None if load.rate is None else load.rate / processes,
            "most": None if load.most is None else -(-load.most // processes),
        }
        for index in range(processes)
    ]
    command = [sys.executable, "-m", "lensbox.bench.serve.load"]
    clients = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(processes)
    ]
    for client, share in zip(clients, shares, strict=True):
        if cores:
            os.sched_setaffinity(client.pid, cores)
        assert client.stdin is not None
        client.stdin.write(json.dumps(share).encode())
        client.stdin.close()
        client.stdin = None
    parts = [Answers(**json.loads(client.communicate()[0])) for client in clients]
    return Answers(
        dict(sum((Counter(part.statuses) for part in parts), Counter())),
        [second for part in parts for second in part.seconds],
        max(part.duration for part in parts),
        sum(part.total for part in parts),
    )


def _wait_until_ready(process: "subprocess.Popen[bytes]", url: str, said: IO[bytes]) -> None:
    """Wait until the service answers `url`. Raise NotReadyError with the last line of `said`, its stderr."""
    deadline = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.2)
    process.kill()
    process.wait()
    said.seek(0)
    lines = said.read().decode(errors="replace").strip().splitlines()
    raise NotReadyError(f"it did not become ready: {lines[-1] if lines else 'it said nothing'}")


def _proportional_size(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _cpu_ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])  # of user and system; the name before them may have spaces
