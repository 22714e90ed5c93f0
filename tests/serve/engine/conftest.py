"""Engines over the fake artifact."""

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from engine_jobs import LOSS, Begin, Make
from waiting import PATIENCE, wait_until

from lensbox.serve.engine.instance import Instance, State
from lensbox.serve.settings import Settings


@pytest.fixture
def make(fake: Any) -> Iterator[Make]:
    """Make a ready instance over the fake artifact. Stop all instances at the end."""
    made: list[Instance] = []

    def make(**settings: Any) -> Instance:
        instance = Instance(lambda: fake, Settings(Path("unused"), **settings), lambda _: None)
        instance.start()
        wait_until(lambda: instance.state is State.READY)
        made.append(instance)
        return instance

    yield make
    fake.gate.set()
    for instance in made:
        assert instance.stop(PATIENCE)


@pytest.fixture
def begin(fake: Any) -> Begin:
    """Submit a job, and return its future once the job is running behind the closed gate."""

    def begin(instance: Instance, job: Any = LOSS) -> "Future[Any]":
        fake.gate.clear()
        count = len(fake.calls)
        future: Future[Any] = instance.submit(job)
        wait_until(lambda: len(fake.calls) > count)
        return future

    return begin
