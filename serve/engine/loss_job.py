"""The loss of boxes, as an engine computes it."""

from collections.abc import Sequence
from dataclasses import dataclass

from lensbox.runtime import Artifact
from lensbox.runtime.box_loss import BoxPairs, Losses, LossUnsupportedError
from lensbox.serve.engine.jobs import Job


@dataclass(frozen=True)
class LossJob(Job[Losses | LossUnsupportedError]):
    """The loss of boxes with their targets.

    per_image, gradient: as `Artifact.losses` takes them. most_slots: how many boxes there may be where a
    detector's own loss takes images of different numbers of boxes padded to the largest. The result is a
    LossUnsupportedError where the model's loss cannot do what was asked: nothing has failed then.
    """

    pairs: BoxPairs
    per_image: bool
    gradient: bool
    most_slots: int

    @property
    def group(self) -> None:
        return None

    @property
    def images(self) -> int:
        return 1

    @property
    def nbytes(self) -> int:
        return self.pairs.predictions.nbytes + self.pairs.targets.nbytes

    @staticmethod
    def run(artifact: Artifact, jobs: "Sequence[LossJob]") -> list[Losses | LossUnsupportedError]:
        return [_losses(artifact, job) for job in jobs]


def _losses(artifact: Artifact, job: LossJob) -> Losses | LossUnsupportedError:
    slots = job.pairs.padded_slots
    if slots > job.most_slots and not artifact.has_giou_loss:
        return LossUnsupportedError(
            f"images must have at most {job.most_slots} boxes once all have as many as the one with most, as "
            f"the detector's own loss takes them, got {slots}"
        )
    try:
        return artifact.losses(job.pairs, job.per_image, job.gradient)
    except LossUnsupportedError as error:
        return error
