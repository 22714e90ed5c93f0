"""Readiness and heartbeats of a front end. `http/test_repository.py` has swaps."""

import asyncio
import multiprocessing
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import PATIENCE, wait_until

from lensbox.serve.errors import NotReadyError
from lensbox.serve.models.control import Table
from lensbox.serve.models.served import ModelVersion
from lensbox.serve.processes import follower as module
from lensbox.serve.processes.follower import Follower


def test_waits_for_other_front_ends_and_beats_unless_it_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT", 0.0)
    monkeypatch.setattr(module, "_IDLE_TICK", 0.001)
    control, supervisor = multiprocessing.Pipe()
    ready: Any = SimpleNamespace(ready_artifact=lambda: None)

    def refuse() -> None:
        raise NotReadyError("all decoding threads are stuck")

    def beats() -> bool:
        while supervisor.poll():
            supervisor.recv()
        return supervisor.poll(0.1)

    async def follow() -> None:
        follower = Follower(control, Table(1, ()), 1 << 16)
        await follower.start()
        follower.all = (ModelVersion(ready, "faces"),)
        with pytest.raises(NotReadyError, match="another front end is still connecting"):
            follower.check_loaded()
        supervisor.send(Table(2, (), is_ready=True))
        while (await asyncio.to_thread(supervisor.recv)).number < 2:
            pass
        follower.check_loaded()
        await asyncio.to_thread(wait_until, beats)
        follower.check_process = refuse
        await asyncio.to_thread(wait_until, lambda: not beats())
        assert await follower.stop(PATIENCE)

    asyncio.run(follow())
    control.close()
    supervisor.close()
