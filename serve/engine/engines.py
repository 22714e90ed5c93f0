"""The interface of an engine, and several engines as one."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

import torch

from lensbox.runtime import Artifact
from lensbox.runtime.file.metadata import ArtifactMetadata
from lensbox.serve.engine.jobs import Job
from lensbox.serve.errors import NotReadyError, OverloadError

Result = TypeVar("Result")
Returned = TypeVar("Returned")


@dataclass(frozen=True)
class DescribedModel:
    """A model in another process. device: its device there. largest_batch, decodes_jpeg: see `Artifact`."""

    metadata: ArtifactMetadata
    device: torch.device
    largest_batch: int
    decodes_jpeg: bool


Model = Artifact | DescribedModel


class Engine:
    """Computes jobs: an `Instance` in this process, a `RemoteEngine`, or several of these.

    An object of this class itself is an engine that is not there, for a reason: its model is loading, or was
    unloaded.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def start(self) -> None:
        """Begin to load the model, or to connect to its process."""

    def ready_artifact(self) -> Model:
        """Return the model. Raise NotReadyError with the reason if there is none."""
        raise NotReadyError(self._reason)

    def submit(self, job: Job[Result], deadline: float = math.inf) -> "Future[Result]":
        """Queue a job. Raise OverloadError or NotReadyError."""
        raise NotReadyError(self._reason)

    def stop(self, timeout: float) -> bool:
        """Stop. Return False if the engine has not stopped after `timeout` seconds."""
        return True

    @property
    def jobs(self) -> int:
        """The number of jobs that have not ended."""
        return 0

    @property
    def room(self) -> int:
        """The number of further jobs that the engine would probably take now."""
        return 0

    @property
    def serves_others(self) -> bool:
        """True if the engine had jobs of other processes, too, when it sent its latest answer."""
        return False

    @property
    def missing(self) -> list[str]:
        """The reasons of all engines that are not ready."""
        try:
            self.ready_artifact()
        except NotReadyError as error:
            return [str(error)]
        return []


class Engines(Engine):
    """Several engines of one model. Jobs go to the engine with the fewest; one ready engine is enough."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = engines

    def start(self) -> None:
        for engine in self._engines:
            engine.start()

    def ready_artifact(self) -> Model:
        return self._first(lambda engine: engine.ready_artifact())

    def submit(self, job: Job[Result], deadline: float = math.inf) -> "Future[Result]":
        return self._first(lambda engine: engine.submit(job, deadline))

    def stop(self, timeout: float) -> bool:
        stopped = [engine.stop(timeout) for engine in self._engines]
        return all(stopped)

    @property
    def jobs(self) -> int:
        return sum(engine.jobs for engine in self._engines)

    @property
    def room(self) -> int:
        return sum(engine.room for engine in self._engines)

    @property
    def serves_others(self) -> bool:
        return any(engine.serves_others for engine in self._engines)

    @property
    def missing(self) -> list[str]:
        return [reason for engine in self._engines for reason in engine.missing]

    def _first(self, ask: "Callable[[Engine], Returned]") -> Returned:
        """Ask engines, the one with the fewest jobs first, until one does not raise.

        Raise the first OverloadError, or else the first NotReadyError.
        """
        failures: list[Exception] = []
        for engine in sorted(self._engines, key=lambda engine: engine.jobs):
            try:
                return ask(engine)
            except (OverloadError, NotReadyError) as error:
                failures.append(error)
        raise next((error for error in failures if isinstance(error, OverloadError)), failures[0])


def one_of(engines: Sequence[Engine]) -> Engine:
    """Return several engines as one. A single engine is not wrapped: each request asks it many times."""
    return engines[0] if len(engines) == 1 else Engines(engines)
