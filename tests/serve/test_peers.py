"""Front ends that share a socket: readiness is that of all, and one that comes later refuses nobody."""

import asyncio
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Listener
from multiprocessing.reduction import recv_handle
from typing import Any

import pytest
from problems import problem_of

from lensbox.runtime.artifact import Artifact
from lensbox.serve.engine.errors import NotReadyError
from lensbox.serve.processes.addresses import new_address
from lensbox.serve.processes.arena import Arena
from lensbox.serve.processes.peers import Peers
from lensbox.serve.processes.pulse import Pulse
from lensbox.serve.processes.remote_engine import RemoteEngine, RemoteEngines

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux' shared memory")

_WAITING = "another front end cannot take images yet"


def test_one_that_accepts_and_has_no_model_is_seen_by_the_others() -> None:
    pulses = [Pulse() for _ in range(3)]
    first, second, third = (Peers(pulses, number) for number in range(3))
    first.beat(True)
    first.check_ready()  # the others accept nothing yet
    second.beat(False)
    for seer in (first, third):
        with pytest.raises(NotReadyError, match=_WAITING):
            seer.check_ready()
    second.check_ready()  # its own it knows better
    second.beat(True)
    first.check_ready()
    third.beat(False)
    pulses[2].reset()  # it has died
    first.check_ready()


def test_processes_share_what_they_say() -> None:
    pulses = [Pulse(), Pulse()]
    process = multiprocessing.get_context("spawn").Process(target=Peers(pulses, 1).beat, args=(False,))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert pulses[1].waits
    assert not pulses[0].waits


def test_balancers_are_told(start: Callable[..., Any], fake: Any) -> None:
    pulses = [Pulse(), Pulse()]
    running = start()
    running.service.peers = Peers(pulses, 0)
    paths = ("/readyz", "/v2/health/ready")
    pulses[1].beat(is_ready=False)
    for path in paths:
        response = running.client.get(path)
        assert response.status_code == 503
        assert _WAITING in response.text
    assert problem_of(running.client.get("/readyz"))["code"] == "not_ready"
    assert running.client.get("/healthz").status_code == 200
    pulses[1].beat(is_ready=True)
    for path in paths:
        assert running.client.get(path).status_code == 200


def test_who_comes_while_the_model_is_there_can_use_it_at_once(artifact: Artifact) -> None:
    address = new_address("cpu")
    listener = Listener(address.path, "AF_UNIX", authkey=address.key)
    ended = threading.Event()

    def engine() -> None:
        with listener.accept() as connection:
            time.sleep(0.3)  # it is busy
            connection.send((artifact.metadata.to_json(), "cpu"))
            connection.recv()
            os.close(recv_handle(connection))
            ended.wait(60)

    thread = threading.Thread(target=engine)
    thread.start()

    async def start() -> None:
        remote = RemoteEngines([RemoteEngine(address, Arena(1 << 16), 4)])
        remote.start()
        assert remote.ready_artifact().metadata.to_json() == artifact.metadata.to_json()
        ended.set()
        assert await asyncio.to_thread(remote.stop, 60)

    asyncio.run(start())
    thread.join(60)
    listener.close()


def test_a_start_does_not_wait_for_a_model_that_is_not_there() -> None:
    async def start() -> None:
        remote = RemoteEngines([RemoteEngine(new_address("cpu"), Arena(1 << 16), 4)])
        begun = time.monotonic()
        remote.start()
        assert time.monotonic() - begun < 4
        with pytest.raises(NotReadyError, match="still loading"):
            remote.ready_artifact()
        assert await asyncio.to_thread(remote.stop, 60)

    asyncio.run(start())
