"""The process of one engine: takes jobs from front ends, and ends when its model is given up."""

import logging
import mmap
import os
import threading
import time
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from multiprocessing.reduction import recv_handle
from typing import Any

from lensbox.serve.engine.instance import Instance
from lensbox.serve.loading import load_model
from lensbox.serve.observability.engine import observed_instance
from lensbox.serve.observability.logs import LogStyle
from lensbox.serve.observability.metrics import Metrics
from lensbox.serve.processes.addresses import EngineAddress
from lensbox.serve.processes.child import begin_child, end_child
from lensbox.serve.processes.front_ends import FrontEnd, FrontEnds
from lensbox.serve.processes.link import Link
from lensbox.serve.processes.pulse import Pulse
from lensbox.serve.settings import Settings

_log = logging.getLogger(__name__)

_FLUSH_TIMEOUT = 2.0  # seconds
_BEAT = 0.5  # seconds
_LOOKS = 5  # in a row that find the model stuck: where the whole process has slept, the call may yet return
_PAUSE = 0.1  # seconds, for want of open files or memory


def main(
    settings: Settings, address: EngineAddress, log: LogStyle, pulse: Pulse, status: "Connection[Any, Any]"
) -> None:
    """Runs until the supervisor ends it, or until its model fails or is stuck. The process ends with 1.

    pulse: beats once the engine is ready. status: tells the supervisor None once it is, or else why it could
    not start.
    """
    begin_child("lensbox-engine", log)
    settings = replace(settings, device=address.device, devices="")
    started = threading.Event()
    failures: list[Exception] = []

    def on_started(failure: Exception | None) -> None:
        failures.extend([failure] if failure is not None else [])
        started.set()

    front_ends = FrontEnds((settings.busy_poll or 0) / 1000)
    engine = observed_instance(
        partial(load_model, settings), settings, on_started, Metrics(), front_ends.receive
    )
    engine.start()
    started.wait()
    if failures:
        status.send(str(failures[0]) or type(failures[0]).__name__)
        end_child(1)
    # Bound before the supervisor is told; a listener of the same name must be gone by then.
    listener = Listener(address.path, "AF_UNIX", backlog=64)
    threading.Thread(target=accept, args=(listener, address.key, engine, front_ends), daemon=True).start()
    pulse.beat()
    status.send(None)
    reason = until_given_up(engine, pulse)
    _log.error("the engine on %s ends: %s", address.device, reason)
    front_ends.end(_FLUSH_TIMEOUT)
    end_child(1)


def until_given_up(engine: Instance, pulse: Pulse) -> str:
    """Beats while the model is in use. Returns why it no longer can be, once those who waited are told."""
    looks = 0
    while not engine.join(_BEAT):
        pulse.beat()
        stuck = engine.stuck
        looks = looks + 1 if stuck else 0
        if looks == _LOOKS:
            return stuck
    return engine.failure


def accept(listener: Listener, key: bytes, engine: Instance, front_ends: FrontEnds) -> None:
    """Adds front ends that connect."""
    while True:
        try:
            connection = listener.accept()
        except OSError as error:
            _log.warning("a front end cannot connect: %s", error)
            time.sleep(_PAUSE)
            continue
        threading.Thread(target=_meet, args=(connection, key, engine, front_ends), daemon=True).start()


def _meet(connection: "Connection[Any, Any]", key: bytes, engine: Instance, front_ends: FrontEnds) -> None:
    """Tells a front end what the model is, and takes its shared memory."""
    try:
        # As `Listener` would: in its thread, whoever connects and says nothing would keep all others out.
        deliver_challenge(connection, key)
        answer_challenge(connection, key)
        model = engine.ready_artifact()
        connection.send((model.metadata.to_json(), str(model.device)))
        size = connection.recv()
        file = recv_handle(connection)
    except Exception as error:
        _log.debug("a front end was none, or is gone before it said anything: %s", error)
        connection.close()
        return
    memory = memoryview(mmap.mmap(file, size))
    os.close(file)
    front_ends.add(FrontEnd(Link(connection, "lensbox-front-end"), memory, engine))
