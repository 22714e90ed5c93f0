"""The interface of an engine, and several engines as one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from lensbox.runtime import Artifact
from lensbox.runtime.file.metadata import ArtifactMetadata
from lensbox.serve.engine.jobs import Job
from lensbox.serve.errors import NotReadyError

Result = TypeVar("Result")


@dataclass(frozen=True)
class RemoteModelInfo:
    """A model in another process. device: its device there. largest_batch, decodes_jpeg: see `Artifact`."""

    metadata: ArtifactMetadata
    device: torch.device
    largest_batch: int
    decodes_jpeg: bool


Model = Artifact | RemoteModelInfo


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

    async def submit(self, job: Job[Result], deadline: float = math.inf) -> Result:
        """Compute a job. Cancel the call to drop a job whose turn has not come.

        deadline: on the clock of `time.monotonic`; a job whose turn comes later raises DeadlineError. Raise
        NotReadyError; OverloadError if the bytes of waiting images are too many; the exception of the job.
        """
        raise NotReadyError(self._reason)

    def stop(self, timeout: float) -> bool:
        """Stop. Return False if the engine has not stopped after `timeout` seconds."""
        return True

    @property
    def jobs(self) -> int:
        """The number of jobs that have not ended."""
        return 0

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
        """Return the model of an engine: of one that decodes no JPEG files, if there is one."""
        models = [engine.ready_artifact() for engine in self._ready]
        return min(models, key=lambda model: model.decodes_jpeg)

    async def submit(self, job: Job[Result], deadline: float = math.inf) -> Result:
        return await min(self._ready, key=lambda engine: engine.jobs).submit(job, deadline)

    def stop(self, timeout: float) -> bool:
        stopped = [engine.stop(timeout) for engine in self._engines]
        return all(stopped)

    @property
    def jobs(self) -> int:
        return sum(engine.jobs for engine in self._engines)

    @property
    def missing(self) -> list[str]:
        return [reason for engine in self._engines for reason in engine.missing]

    @property
    def _ready(self) -> list[Engine]:
        """The engines that are ready, or all if none is."""
        return [engine for engine in self._engines if not engine.missing] or [*self._engines]
