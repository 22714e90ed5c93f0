"""SIGTERM and SIGINT end `lensbox serve` even if a thread is stuck.

Stuck parts sleep for an hour, so that no test depends on their end.
"""

import os
import pty
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from serve_process import ServeProcess, with_limits
from services import problem_of
from waiting import PATIENCE, wait_until

_NO_BOXES: dict[str, list[Any]] = {"predictions": [], "targets": []}
# Images take an hour to decode.
_STUCK_DECODER = """
import sys, time, lensbox.serve.requests.decoding
def decode(*_):
    print("decoding", file=sys.stderr, flush=True)
    time.sleep(3600)
lensbox.serve.requests.decoding.photo_from_file = decode
"""
# An orderly shutdown that exits with 7, never ends, or is not set yet. Exits with 8 to reload.
_SHUTDOWN = """
import sys, time
from lensbox.serve.shutdown import Shutdown
shutdown = Shutdown(0.1)
shutdown.ask = {"exits": lambda: sys.exit(7), "hangs": lambda: None}.get(sys.argv[1])
print("running", flush=True)
while not shutdown.takes_reload():
    time.sleep(0.01)
sys.exit(8)
"""


def test_a_stuck_decoder_ends_at_the_shutdown_timeout(artifact_path: Path) -> None:
    before = with_limits(shutdown_timeout=1) + _STUCK_DECODER
    with (
        ThreadPoolExecutor(1) as pool,
        ServeProcess(artifact_path, before=before) as process,
        httpx.Client(base_url=process.ready(), timeout=PATIENCE) as client,
    ):
        answer = pool.submit(client.post, "/v1/detect", content=b"an image")
        wait_until(lambda: "decoding" in process.log)
        assert client.post("/v1/loss", json=_NO_BOXES).status_code == 200  # a loss waits for no decoder
        assert process.end(signal.SIGTERM) == 0
        problem = problem_of(answer.result(PATIENCE))
        assert problem == (503, "not_ready", "the service is shutting down")
        process.lines.remove("decoding\n")
        for line in process.lines:
            assert re.match(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+: ", line), line


@pytest.mark.parametrize(
    ("number", "ask", "stdin", "code"),
    [
        (signal.SIGTERM, "exits", "none", 7),
        (signal.SIGTERM, "hangs", "none", -signal.SIGALRM),
        (signal.SIGTERM, "imports", "none", 0),
        (signal.SIGHUP, "exits", "terminal", 8),
        (signal.SIGHUP, "exits", "closed terminal", 7),
    ],
)
def test_signals_end_or_reload_a_process(number: signal.Signals, ask: str, stdin: str, code: int) -> None:
    """SIGHUP reloads; that of a closed terminal ends the process. The kernel ends a shutdown that hangs."""
    own, terminal = pty.openpty()
    command = [sys.executable, "-c", _SHUTDOWN, ask]
    source = subprocess.DEVNULL if stdin == "none" else terminal
    with subprocess.Popen(command, stdin=source, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"running\n"
        os.close(terminal)
        if stdin == "closed terminal":
            os.close(own)
        process.send_signal(number)
        assert process.wait(PATIENCE) == code
    if stdin != "closed terminal":
        os.close(own)
