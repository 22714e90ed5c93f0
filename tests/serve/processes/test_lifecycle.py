"""One child process: starts, restarts with back-off, and silence."""

import errno
import multiprocessing
import os
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from lensbox.serve.processes import lifecycle

_PID = 1 << 30  # no process has it


def test_retries_a_failed_start_with_back_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    starts: list[None] = []
    codes = dict[int, int]()

    def launch() -> Any:
        starts.append(None)
        if len(starts) <= 3:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        codes.clear()
        return _PID, multiprocessing.Pipe()[0]

    now = 100.0
    monkeypatch.setattr(lifecycle, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(os, "waitpid", lambda pid, _: (pid, codes[pid] << 8) if pid in codes else (0, 0))
    child = lifecycle.Child("an engine", "engine-0", launch, print)
    counters: Any = Mock()
    for _ in range(10):
        child.keep_alive(counters)
        now += 0.2
    assert len(starts) == 4  # at 0, 0.2, 0.8 and 1.8 seconds
    assert child.is_running
    assert caplog.text.count("an engine cannot be started; retrying: [Errno 11] Resource") == 3
    for seconds, failures in ((31.0, 1), (1.0, 2)):  # after a long run, earlier failures do not count
        now += seconds
        codes[_PID] = 1
        child.keep_alive(counters)
        assert child.failures == failures
        assert child.is_running == (failures == 1)


def test_silence_counts_only_time_between_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    now, killed = 100.0, list[float]()
    monkeypatch.setattr(lifecycle, "time", SimpleNamespace(monotonic=lambda: now))
    own, other = multiprocessing.Pipe()
    child = lifecycle.Child("an engine", "engine-0", lambda: (_PID, own), print, patience=3.0)
    monkeypatch.setattr(os, "waitpid", lambda *_: (0, 0))
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(now))

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
    own.close()
    other.close()
