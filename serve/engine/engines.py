"""Several engines as one: a job goes to the one with the fewest jobs."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

import torch

from lensbox.serve.engine.errors import NotReadyError, OverloadError
from lensbox.serve.engine.jobs import Job
from lensbox.serve.engine.model import Model

Result = TypeVar("Result")
Answer = TypeVar("Answer")


class Engine(Protocol):
    """What computes jobs: an `Instance` in this process, one in another process, or several of them.

    `ready_artifact` describes the model; it raises NotReadyError, as `submit` does, where there is none.
    `check_room` raises OverloadError if `submit` would, or is likely to once the images of `requests` that
    are in progress have been decoded. `waiting`: jobs that have not begun. `loaded`:
    whether there is a model, ready or not. `missing`: why some engines of several are not ready. `lost`: why
    none of them will have a model again in this process, "" while one may. `stop`
    ends it in time, or returns False. `device`: what the model computes on, None before it is loaded.
    """

    def start(self) -> None: ...

    def ready_artifact(self) -> Model: ...

    def check_room(self, deadline: float = math.inf, requests: int = 0) -> None: ...

    def submit(self, job: Job[Result], deadline: float = math.inf) -> "Future[Result]": ...

    def stop(self, timeout: float) -> bool: ...

    @property
    def waiting(self) -> int: ...

    @property
    def loaded(self) -> bool: ...

    @property
    def device(self) -> torch.device | None: ...

    @property
    def missing(self) -> list[str]: ...

    @property
    def lost(self) -> str: ...


class Engines:
    """Several engines of one model. They are ready while one of them is."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = engines

    def start(self) -> None:
        """Starts all of them."""
        for engine in self._engines:
            engine.start()

    def ready_artifact(self) -> Model:
        """That of one that is ready. Raises NotReadyError, which says why the first is not."""
        return self._first(lambda engine: engine.ready_artifact())

    def check_room(self, deadline: float = math.inf, requests: int = 0) -> None:
        """Raises OverloadError if none has room in time, and NotReadyError if none is ready."""
        share = requests // len(self._engines)

        def check(engine: Engine) -> None:
            engine.ready_artifact()
            engine.check_room(deadline, share)

        self._first(check)

    def submit(self, job: Job[Result], deadline: float = math.inf) -> "Future[Result]":
        """Gives a job to the engine with the fewest. Raises OverloadError and NotReadyError."""
        return self._first(lambda engine: engine.submit(job, deadline))

    def stop(self, timeout: float) -> bool:
        """Stops all of them; False if time ran out for one."""
        stopped = [engine.stop(timeout) for engine in self._engines]
        return all(stopped)

    @property
    def waiting(self) -> int:
        """Jobs that have not begun."""
        return sum(engine.waiting for engine in self._engines)

    @property
    def loaded(self) -> bool:
        """Whether one of them has a model."""
        return any(engine.loaded for engine in self._engines)

    @property
    def device(self) -> torch.device | None:
        """That of the first that is loaded."""
        return next((engine.device for engine in self._engines if engine.device is not None), None)

    @property
    def lost(self) -> str:
        """Why the first is lost, if all are."""
        reasons = [engine.lost for engine in self._engines]
        return reasons[0] if all(reasons) else ""

    @property
    def missing(self) -> list[str]:
        """Why some of them are not ready."""
        reasons = []
        for engine in self._engines:
            try:
                engine.ready_artifact()
            except NotReadyError as error:
                reasons.append(str(error))
        return reasons

    def _first(self, ask: "Callable[[Engine], Answer]") -> Answer:
        """What the one with the fewest jobs that can says; else why not, rather for want of room."""
        failures: list[Exception] = []
        for engine in sorted(self._engines, key=lambda engine: engine.waiting):
            try:
                return ask(engine)
            except (OverloadError, NotReadyError) as error:
                failures.append(error)
        raise next((error for error in failures if isinstance(error, OverloadError)), failures[0])
