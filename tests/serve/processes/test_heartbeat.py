"""Heartbeats of processes, and readiness of front ends that share a socket."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
from services import Start

from lensbox.serve.errors import NotReadyError
from lensbox.serve.processes.heartbeat import Heartbeat, Peers

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux' shared memory")

_WAITING = "another front end cannot take images yet"


def test_check_ready_fails_while_another_front_end_is_not_ready() -> None:
    heartbeats = [Heartbeat() for _ in range(3)]
    first, second, third = (Peers(heartbeats, number) for number in range(3))
    first.beat(True)
    first.check_ready()  # the other front ends do not accept requests yet
    second.beat(False)
    for seer in (first, third):
        with pytest.raises(NotReadyError, match=_WAITING):
            seer.check_ready()
    second.check_ready()  # a front end does not check its own heartbeat
    second.beat(True)
    first.check_ready()
    third.beat(False)
    heartbeats[2].reset()  # the third front end has died
    first.check_ready()


def test_readyz_waits_for_all_front_ends(start: Start, fake: Any) -> None:
    heartbeats = [Heartbeat(), Heartbeat()]
    running = start()
    running.service.peers = Peers(heartbeats, 0)
    paths = ("/readyz", "/v2/health/ready")
    heartbeats[1].beat(is_ready=False)
    for path in paths:
        response = running.client.get(path)
        assert response.status_code == 503
        assert _WAITING in response.text
    heartbeats[1].beat(is_ready=True)
    for path in paths:
        assert running.client.get(path).status_code == 200


def test_silence_counts_only_time_between_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("lensbox.serve.processes.heartbeat.time", SimpleNamespace(monotonic=lambda: now))
    heartbeat = Heartbeat()
    now = 100.0
    assert heartbeat.silence() == 0  # before the first beat
    heartbeat.beat()
    assert heartbeat.silence() == 0
    for look in range(1, 11):
        now += 0.1
        assert heartbeat.silence() == pytest.approx(0.1 * look)
    now += 1000.0  # the checking process was suspended
    assert 0 < heartbeat.silence() < 2
    # A restarted process may have the same count as its predecessor.
    heartbeat.reset()
    heartbeat.beat()
    now += 0.1
    assert heartbeat.silence() == 0
