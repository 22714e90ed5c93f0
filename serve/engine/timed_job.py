"""Jobs that tell, with their result, when they were computed, in whatever process that was."""

import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lensbox.runtime import Artifact
from lensbox.serve.engine.jobs import Job


class Timed(NamedTuple):
    """A job's result. begun, ended: of its batch, or of its first and last part, on the clock of
    `time.monotonic`, which is one for a machine. images: those of the batch, or of all parts."""

    result: Any
    begun: float
    ended: float
    images: int


@dataclass(frozen=True)
class TimedJob(Job[Timed]):
    """Another job, whose result comes as `Timed`."""

    job: Job[Any]

    @property
    def group(self) -> Hashable | None:
        return self.job.group

    @property
    def images(self) -> int:
        return self.job.images

    @property
    def nbytes(self) -> int:
        return self.job.nbytes

    @staticmethod
    def run(artifact: Artifact, jobs: "Sequence[TimedJob]") -> list[Timed]:
        """As the jobs themselves."""
        begun = time.monotonic()
        results = jobs[0].job.run(artifact, [job.job for job in jobs])
        ended = time.monotonic()
        images = sum(job.images for job in jobs)
        return [Timed(result, begun, ended, images) for result in results]

    def parts(self, largest: int) -> "Iterator[TimedJob]":
        return map(TimedJob, self.job.parts(largest))

    def joined(self, results: Sequence[Timed]) -> Timed:
        result = self.job.joined([part.result for part in results])
        return Timed(result, results[0].begun, results[-1].ended, sum(part.images for part in results))
