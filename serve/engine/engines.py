"""The interface of an engine, several engines as one, and an engine that is not there."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeVar

import torch

from lensbox.common.fields import Orientation
from lensbox.runtime.file.metadata import ArtifactMetadata, Reading
from lensbox.serve.engine.jobs import Job
from lensbox.serve.errors import NotReadyError, OverloadError

Result = TypeVar("Result")
Returned = TypeVar("Returned")


class Model(Protocol):
    """The description of a model: an `Artifact`, or a `DescribedModel` of an artifact in another process."""

    @property
    def metadata(self) -> ArtifactMetadata: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def decodes_jpeg(self) -> bool: ...

    def reading(self, orientation: Orientation | None = None, full_size: bool = False) -> Reading: ...


@dataclass(frozen=True)
class DescribedModel:
    """A model in another process. device: its device in that process. decodes_jpeg: see `Artifact`."""

    metadata: ArtifactMetadata
    device: torch.device
    decodes_jpeg: bool = False

    def reading(self, orientation: Orientation | None = None, full_size: bool = False) -> Reading:
        """See `Artifact.reading`."""
        return self.metadata.reading.asked(orientation, full_size)


class Engine(Protocol):
    """Computes jobs: an `Instance` in this process, a `RemoteEngine`, several of these, or `Absent`."""

    def start(self) -> None: ...

    def ready_artifact(self) -> Model:
        """Return the model. Raise NotReadyError with the reason if there is none."""

    def check_room(self, deadline: float = math.inf, requests: int = 0) -> None:
        """Raise OverloadError if `submit` would do so now, or probably once `requests` images are decoded.

        requests: number of requests in progress, with those whose job is submitted.
        """

    def submit(self, job: Job[Result], deadline: float = math.inf) -> "Future[Result]":
        """Queue a job. Raise OverloadError or NotReadyError."""

    def stop(self, timeout: float) -> bool:
        """Stop. Return False if the engine has not stopped after `timeout` seconds."""

    @property
    def waiting(self) -> int:
        """The number of jobs that have not begun."""

    @property
    def room(self) -> int:
        """The number of further jobs that the engine would probably take now."""

    @property
    def serves_others(self) -> bool:
        """True if the engine had jobs of other processes, too, when it sent its latest answer."""

    @property
    def loaded(self) -> bool:
        """True once the model is loaded, even if it is out of use."""

    @property
    def missing(self) -> list[str]:
        """The reasons of all engines that are not ready."""

    @property
    def lost(self) -> str:
        """The reason if only a restart of this process can help; "" otherwise."""


class Absent:
    """An engine that is not there, for a reason: its model is loading, or was unloaded."""

    waiting = room = 0
    serves_others = loaded = False
    lost = ""

    def __init__(self, reason: str) -> None:
        self.missing = [reason]

    def start(self) -> None: ...

    def ready_artifact(self) -> NoReturn:
        raise NotReadyError(self.missing[0])

    def check_room(self, deadline: float = math.inf, requests: int = 0) -> None:
        self.ready_artifact()

    def submit(self, job: Job[Result], deadline: float = math.inf) -> "Future[Result]":
        self.ready_artifact()

    def stop(self, timeout: float) -> bool:
        return True


class Engines:
    """Several engines of one model. Jobs go to the engine with the fewest; one ready engine is enough."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = engines

    def start(self) -> None:
        for engine in self._engines:
            engine.start()

    def ready_artifact(self) -> Model:
        return self._first(lambda engine: engine.ready_artifact())

    def check_room(self, deadline: float = math.inf, requests: int = 0) -> None:
        share = requests // len(self._engines)

        def check(engine: Engine) -> None:
            engine.ready_artifact()
            engine.check_room(deadline, share)

        self._first(check)

    def submit(self, job: Job[Result], deadline: float = math.inf) -> "Future[Result]":
        return self._first(lambda engine: engine.submit(job, deadline))

    def stop(self, timeout: float) -> bool:
        stopped = [engine.stop(timeout) for engine in self._engines]
        return all(stopped)

    @property
    def waiting(self) -> int:
        return sum(engine.waiting for engine in self._engines)

    @property
    def room(self) -> int:
        return sum(engine.room for engine in self._engines)

    @property
    def serves_others(self) -> bool:
        return any(engine.serves_others for engine in self._engines)

    @property
    def loaded(self) -> bool:
        return any(engine.loaded for engine in self._engines)

    @property
    def missing(self) -> list[str]:
        return [reason for engine in self._engines for reason in engine.missing]

    @property
    def lost(self) -> str:
        reasons = [engine.lost for engine in self._engines]
        return reasons[0] if all(reasons) else ""

    def _first(self, ask: "Callable[[Engine], Returned]") -> Returned:
        """Ask engines, the one with the fewest jobs first, until one does not raise.

        Raise the first OverloadError, or else the first NotReadyError.
        """
        failures: list[Exception] = []
        alone = len(self._engines) == 1
        for engine in self._engines if alone else sorted(self._engines, key=lambda engine: engine.waiting):
            try:
                return ask(engine)
            except (OverloadError, NotReadyError) as error:
                failures.append(error)
        raise next((error for error in failures if isinstance(error, OverloadError)), failures[0])
