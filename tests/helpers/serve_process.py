"""`lensbox serve` in another process."""

import contextlib
import functools
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
from waiting import PATIENCE, wait_until

# A request over its own connection, without TLS. With `verify`, it would first read the certificates of all
# authorities, which takes longer than an answer.
request = functools.partial(httpx.request, timeout=PATIENCE, verify=False)

SERVE_COMMAND = [sys.executable, "-m", "lensbox.cli", "serve", "--device", "cpu"]


def with_limits(**limits: float) -> str:
    """Return the code for `before` that changes settings which are no options."""
    code = "import functools, lensbox.serve.cli as cli\n"
    return f"{code}cli.Settings = functools.partial(cli.Settings, **{limits!r})\n"


class ServeProcess:
    """A running `lensbox serve` on a free port, by default on the CPU. A thread collects the log.

    artifact: None if the options name models. before: Python code that its first process runs first.
    """

    def __init__(self, artifact: Path | None, *options: str, before: str = "") -> None:
        command = SERVE_COMMAND
        if before:
            code = f"{before}\nimport sys\nfrom lensbox.cli.main import main\nsys.exit(main())"
            command = [sys.executable, "-c", code, *SERVE_COMMAND[3:]]
        self.process = subprocess.Popen(
            [*command, "--port", "0", *([] if artifact is None else ["--artifact", str(artifact)]), *options],
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
            for line in stream:
                self.lines.append(line)

    @property
    def log(self) -> str:
        """Return the log so far."""
        return "".join(self.lines)

    def url(self) -> str | None:
        """Return the address in the log; None before it is there."""
        assert self.process.poll() is None, self.log
        found = re.search(r"listening on (https?://127\.0\.0\.1:\d+)", self.log)
        return found.group(1) if found else None

    def has_said_ready(self) -> bool:
        """Return whether the log has the address and the line "ready"."""
        return self.url() is not None and "ready: " in self.log

    def ready(self) -> str:
        """Wait until all engines are ready and the log says so; return the address."""

        def is_ready() -> bool:
            # The log's line may come after the answer of /readyz.
            if not self.has_said_ready():
                return False
            try:
                response = request("GET", f"{self.url()}/readyz")
            except httpx.TransportError:
                return False
            return response.status_code == 200 and "missing" not in response.json()

        wait_until(is_ready)
        return self.url() or ""

    def workers(self) -> dict[str, list[int]]:
        """Return the pids of engines and of front ends."""
        found: dict[str, list[int]] = {"engines": [], "frontends": []}
        kinds = {"lensbox-engine": "engines", "lensbox-http": "frontends"}
        for child in _children(self.process.pid):
            if kind := kinds.get(read_process(child, "comm").strip()):
                found[kind].append(child)
        return found

    def refusal(self) -> str:
        """Wait until the process has exited with 3; return the message."""
        assert self.process.wait(PATIENCE) == 3, self.log
        self.thread.join(PATIENCE)
        assert "Traceback" not in self.log
        assert self.lines[-1].startswith("lensbox serve: cannot start: ")
        return self.lines[-1]

    def end(self, number: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        self.thread.join(PATIENCE)
        return code

    def __enter__(self) -> "ServeProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait(PATIENCE)
        self.thread.join(PATIENCE)


def read_process(pid: int, name: str) -> str:
    """Return a file of a process in /proc; "" if the process has just ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _children(pid: int) -> list[int]:
    return [int(child) for child in read_process(pid, f"task/{pid}/children").split()]


@contextlib.contextmanager
def running_service(artifact: Path, *options: str) -> Iterator[str]:
    """Run a service; yield its address once it is ready."""
    with ServeProcess(artifact, *options) as process:
        wait_until(process.has_said_ready)
        yield process.url() or ""
