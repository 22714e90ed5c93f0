"""The process of an engine: waiting for front ends, and the end of a stuck model."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from waiting import PATIENCE, wait_until

from lensbox.serve.engine.instance import Instance
from lensbox.serve.engine.jobs import CanvasJob
from lensbox.serve.errors import NotReadyError
from lensbox.serve.settings import Settings

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux' shared memory")

if hasattr(os, "memfd_create"):
    from lensbox.serve.processes.engine_process import until_given_up

_SOON = Settings(Path("unused"), answer_timeout=0.1, engine_timeout=0.2)


def test_an_engine_beats_until_its_model_is_stuck(fake: Any) -> None:
    started = threading.Event()
    instance = Instance(lambda: fake, _SOON, lambda _: started.set())
    instance.start()
    assert started.wait(PATIENCE)
    beats, reasons = list[None](), list[str]()
    watcher = threading.Thread(
        target=lambda: reasons.append(until_given_up(instance, lambda: beats.append(None)))
    )
    watcher.start()
    wait_until(lambda: len(beats) > 2)
    fake.gate.clear()
    instance.submit(CanvasJob(torch.zeros([1, 1, 2, 2], dtype=torch.uint8)))
    watcher.join(PATIENCE)
    assert reasons[0].startswith("a call of the model has run for more than ")
    with pytest.raises(NotReadyError, match="has run for more than"):
        instance.ready_artifact()
    fake.gate.set()
    assert instance.stop(PATIENCE)


def test_a_suspended_process_keeps_its_engine() -> None:
    """Its process was suspended twice: a call seems stuck, and then returns."""
    looks = iter([*["stuck"] * 3, "", *["stuck"] * 3, ""])

    class Woken:
        failure, stuck = "its model has failed", ""

        def join(self, timeout: float) -> bool:
            self.stuck = next(looks, "ended")
            return self.stuck == "ended"

    engine: Any = Woken()
    assert until_given_up(engine, lambda: None) == engine.failure
