"""Several engines as one."""

import asyncio
from typing import Any

import pytest

from lensbox.serve.engine.engines import Engine, Engines
from lensbox.serve.errors import NotReadyError, OverloadError


class FakeEngine(Engine):
    """An engine with a name and a number of jobs. Raises `failure` if set."""

    jobs = 0

    def __init__(
        self, name: str, jobs: int, failure: Exception | None = None, decodes_jpeg: bool = True
    ) -> None:
        self.name, self.jobs, self.failure, self.decodes_jpeg = name, jobs, failure, decodes_jpeg
        self.is_started = self.is_stopped = False

    def start(self) -> None:
        self.is_started = True

    def ready_artifact(self) -> Any:
        if isinstance(self.failure, NotReadyError):
            raise self.failure
        return self  # what the tests ask of a model

    async def submit(self, job: Any, deadline: float = 0.0) -> Any:
        if self.failure is not None:
            raise self.failure
        self.jobs += 1
        return self.name

    def stop(self, timeout: float) -> bool:
        self.is_stopped = True
        return self.name != "stuck"


def _job(engines: Engines) -> str:
    name: str = asyncio.run(engines.submit(0))  # type: ignore[arg-type]
    return name


def test_gives_a_job_to_the_engine_with_the_fewest() -> None:
    first, second = FakeEngine("stuck", 2), FakeEngine("b", 0)
    engines = Engines([first, second])
    engines.start()
    assert first.is_started
    assert second.is_started
    assert [_job(engines) for _ in range(5)] == ["b", "b", "stuck", "b", "stuck"]
    assert engines.jobs == 7
    assert not engines.stop(0.0)
    assert first.is_stopped
    assert second.is_stopped


def test_skips_engines_that_are_down() -> None:
    down = FakeEngine("down", 0, NotReadyError("being started"))
    full = FakeEngine("full", 1, OverloadError("full"))
    engines = Engines([down, full])
    model: Any = engines.ready_artifact()
    assert model is full
    assert engines.missing == ["being started"]
    with pytest.raises(OverloadError, match="full"):
        _job(engines)
    full.failure = NotReadyError("given up")
    with pytest.raises(NotReadyError, match="being started"):
        engines.ready_artifact()


def test_engines_decode_jpeg_files_if_all_can() -> None:
    """A job may go to any of them."""
    gpu, cpu = FakeEngine("gpu", 0), FakeEngine("cpu", 5, decodes_jpeg=False)
    assert Engines([gpu, FakeEngine("other", 1)]).ready_artifact().decodes_jpeg
    assert not Engines([gpu, cpu]).ready_artifact().decodes_jpeg
