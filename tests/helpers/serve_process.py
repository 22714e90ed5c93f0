"""`lensbox serve` as a process of its own, for tests."""

import contextlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

# How long a test waits, in seconds, for something that is sure to come. A GPU may need most of it to warm up.
PATIENCE = 120
SERVE_COMMAND = [sys.executable, "-m", "lensbox.common", "serve", "--device", "cpu", "--threads", "1"]


class ServeProcess:
    """A running `lensbox serve` on a free port, by default on the CPU; its log is gathered in a thread.

    before: Python code that its process runs first.
    """

    def __init__(self, artifact: Path, *options: str, before: str = "") -> None:
        command = SERVE_COMMAND
        if before:
            code = f"{before}\nimport sys\nfrom lensbox.common.main import main\nsys.exit(main())"
            command = [sys.executable, "-c", code, *SERVE_COMMAND[3:]]
        self.process = subprocess.Popen(
            [*command, "--port", "0", "--artifact", str(artifact), *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # as a terminal's job
        )
        self.lines: list[str] = []
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            self.lines.extend(iter(stream.readline, ""))

    @property
    def log(self) -> str:
        """What the process has written so far."""
        return "".join(self.lines)

    def url(self) -> str | None:
        """The address in the log, once it is there."""
        assert self.process.poll() is None, self.log
        found = re.search(r"listening on (https?://127\.0\.0\.1:\d+)", self.log)
        return found.group(1) if found else None

    def end(self, number: signal.Signals) -> int:
        """Sends a signal and returns the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        self.thread.join(PATIENCE)
        return code

    def close(self) -> None:
        """Whatever happened, leaves no process behind."""
        self.process.kill()
        self.process.wait(PATIENCE)
        self.thread.join(PATIENCE)


@contextlib.contextmanager
def running_service(artifact: Path, *options: str) -> Iterator[str]:
    """A service that is ready; gives its address."""
    server = ServeProcess(artifact, *options)
    try:
        until = time.monotonic() + PATIENCE
        while "ready:" not in server.log:
            assert server.process.poll() is None, server.log
            assert time.monotonic() < until, server.log
            time.sleep(0.05)
        yield server.url() or ""
    finally:
        server.close()


def workers(process: ServeProcess) -> dict[str, list[int]]:
    """The pids of engines and front ends."""
    found: dict[str, list[int]] = {"lensbox-engine": [], "lensbox-http": []}
    for server in fork_servers(process):
        for worker in _children(server):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found.setdefault(Path(f"/proc/{worker}/comm").read_text().strip(), []).append(worker)
    return {"engines": found["lensbox-engine"], "frontends": found["lensbox-http"]}


def fork_servers(process: ServeProcess) -> list[int]:
    """The pid of the one that there is."""
    return [
        child
        for child in _children(process.process.pid)
        if b"forkserver" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def _children(pid: int) -> list[int]:
    """None of a process that has just ended."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
