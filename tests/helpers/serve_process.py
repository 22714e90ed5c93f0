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
    """A running `lensbox serve` on a free port, by default on the CPU. A thread collects the log.

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
        """Return the log so far."""
        return "".join(self.lines)

    def url(self) -> str | None:
        """Return the address in the log; None before it is there."""
        assert self.process.poll() is None, self.log
        found = re.search(r"listening on (https?://127\.0\.0\.1:\d+)", self.log)
        return found.group(1) if found else None

    def end(self, number: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        self.thread.join(PATIENCE)
        return code

    def close(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait(PATIENCE)
        self.thread.join(PATIENCE)


@contextlib.contextmanager
def running_service(artifact: Path, *options: str) -> Iterator[str]:
    """Run a service; yield its address once it is ready."""
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
