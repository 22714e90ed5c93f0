"""One child process: starts, restarts with back-off, and silence."""

import multiprocessing
import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from lensbox.serve.processes import lifecycle
from lensbox.serve.processes.child import SUPERVISOR


def test_retries_a_failed_start_with_back_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Retry a failed start, for example after the fork server was killed."""
    monkeypatch.setattr(lifecycle, "ensure_fork_server", lambda: None)
    starts: list[None] = []

    def start() -> None:
        starts.append(None)
        if len(starts) <= 3:
            raise EOFError

    now = 100.0
    monkeypatch.setattr(lifecycle, "time", SimpleNamespace(monotonic=lambda: now))
    process = SimpleNamespace(start=start, exitcode=None)
    context = SimpleNamespace(Process=lambda **_: process, Pipe=multiprocessing.Pipe)
    monkeypatch.setattr(lifecycle, "CONTEXT", context)
    child = lifecycle.Child("an engine", "engine-0", print, tuple, print)
    counters: Any = Mock()
    for _ in range(10):
        child.keep_alive(counters)
        now += 0.2
    assert len(starts) == 4  # at 0, 0.2, 0.8 and 1.8 seconds
    assert caplog.text.count("an engine cannot be started; retrying: ") == 3
    process.exitcode = 1
    for seconds, failures in ((31.0, 1), (1.0, 2)):  # after a long run, earlier failures do not count
        now += seconds
        child.keep_alive(counters)
        assert child.failures == failures


def test_silence_counts_only_time_between_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    now, killed = 100.0, list[float]()
    monkeypatch.setattr(lifecycle, "time", SimpleNamespace(monotonic=lambda: now))
    child = lifecycle.Child("an engine", "engine-0", print, tuple, print, patience=3.0)
    child.process = SimpleNamespace(exitcode=None, kill=lambda: killed.append(now))
    child.pipe, other = multiprocessing.Pipe()

    def look(seconds: float) -> None:
        nonlocal now
        now += seconds
        child.keep_alive(None)  # type: ignore[arg-type]

    for _ in range(100):  # before the first heartbeat
        look(0.4)
    other.send(None)
    for _ in range(6):
        look(0.4)
    look(1000.0)  # the checking process was suspended
    assert killed == []
    other.send(None)  # a further heartbeat
    for _ in range(6):
        look(0.4)
    assert killed == []
    for _ in range(20):
        look(0.4)
    assert len(killed) == 1
    child.pipe.close()
    other.close()


def test_a_fork_server_ends_if_its_supervisor_was_killed_meanwhile() -> None:
    command = [sys.executable, "-c", "import lensbox.serve.processes.fork_server"]
    for supervisor, code in ((os.getpid(), 0), (1 << 30, -signal.SIGKILL)):
        environment = {**os.environ, SUPERVISOR: str(supervisor)}
        assert subprocess.run(command, env=environment, check=False).returncode == code
