"""Jobs of an engine. Jobs are plain data, so an engine can compute all jobs of a group in one batch.

They are records of msgspec, which travel as they are (`processes.messages`); results are arrays of numpy.
"""

import asyncio
import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from msgspec import Struct
from numpy.typing import NDArray
from torch import Tensor

from lensbox.runtime import Artifact, Photo
from lensbox.runtime.detect.detection import Detections
from lensbox.runtime.detect.pipeline import Fitted, Launched
from lensbox.runtime.detect.tiles import Window, views_of
from lensbox.runtime.detect.transfer import HostCopy, to_host
from lensbox.runtime.images.gpu_jpeg import CodedPhoto, decoded_photos, decoded_pixels

Result = TypeVar("Result")
Array = np.ndarray[Any, Any]
Thresholds = tuple[float | None, float | None]
Found = Detections[NDArray[Any]]
Outputs = Mapping[str, NDArray[Any]]
"""The outputs of n canvases by name: see `Artifact.detect`; `counts` is int32 here."""


def settle(future: "asyncio.Future[Any]", result: Any) -> None:
    """Give a future its result, or an exception, unless it is cancelled."""
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


class Job(Struct, Generic[Result], frozen=True, tag=True, array_like=True):
    """A computation with the model, run in the engine's thread.

    group: jobs of equal groups may share a batch; None, the default: the job runs alone. images: number of
    places in a batch, by default 1, at most the artifact's `largest_batch`. nbytes: size of its tensors.
    prepares: whether the engine calls `prepare`.
    """

    prepares: ClassVar[bool] = False

    @property
    def group(self) -> Hashable | None:
        return None

    @property
    def images(self) -> int:
        return 1

    @property
    def nbytes(self) -> int:
        raise NotImplementedError

    @staticmethod
    def prepare(artifact: Artifact, jobs: Sequence[Any]) -> Any:
        """Return what `launch` needs. Called in another thread, beside calls for other jobs."""
        return None

    @staticmethod
    def launch(artifact: Artifact, jobs: Sequence[Any], prepared: Any = None) -> Any:
        """Begin one call of the model for all jobs, which are of one group, without waiting for a GPU.

        prepared: the result of `prepare` for these jobs; None if it was not called.
        """
        raise NotImplementedError

    @staticmethod
    def fetch(artifact: Artifact, jobs: Sequence[Any], launched: Any) -> Sequence[Result]:
        """Wait for the result of `launch`. Return one result per job, in order."""
        raise NotImplementedError


class DetectorJob(Job[Result], frozen=True):
    """A job for the detector. Jobs of one kind with equal thresholds share a batch.

    thresholds: of score and of IoU; None is the artifact's default.
    """

    thresholds: Thresholds

    @property
    def group(self) -> Hashable:
        return type(self), self.thresholds


class DetectJob(DetectorJob[Found], frozen=True):
    """Detect in one photograph."""

    photo: Photo

    @property
    def nbytes(self) -> int:
        return self.photo.pixels.nbytes

    @staticmethod
    def launch(artifact: Artifact, jobs: "Sequence[DetectJob]", prepared: Any = None) -> Launched:
        return artifact.launch([job.photo for job in jobs], *jobs[0].thresholds)

    @staticmethod
    def fetch(artifact: Artifact, jobs: "Sequence[DetectJob]", launched: Launched) -> list[Found]:
        return artifact.fetch(launched)


class CodedJob(DetectorJob[Found | None], frozen=True):
    """Detect in a JPEG file that the GPU decodes. The result is None if the CPU must decode the file."""

    prepares: ClassVar[bool] = True
    file: Array  # uint8 [N]
    orientation: int
    width: int
    height: int

    @property
    def nbytes(self) -> int:
        return self.file.nbytes

    @classmethod
    def of(cls, thresholds: Thresholds, photo: CodedPhoto) -> "CodedJob":
        """Return the job of a file, which is not copied."""
        return cls(thresholds, np.asarray(photo.file), photo.orientation, photo.width, photo.height)

    @property
    def photo(self) -> CodedPhoto:
        return CodedPhoto("", self.file.data, self.orientation, self.width, self.height)

    @staticmethod
    def prepare(artifact: Artifact, jobs: "Sequence[CodedJob]") -> tuple[list[bool], Fitted]:
        coded = [job.photo for job in jobs]
        pixels = decoded_pixels(coded, artifact.device, artifact.metadata.canvas)
        photos = decoded_photos(pixels, coded)
        decoded = [photo for photo in photos if photo is not None]
        return [photo is not None for photo in photos], artifact.fit(decoded)

    @staticmethod
    def launch(
        artifact: Artifact, jobs: "Sequence[CodedJob]", prepared: tuple[list[bool], Fitted] | None = None
    ) -> tuple[list[bool], Launched]:
        is_decoded, fitted = prepared or CodedJob.prepare(artifact, jobs)
        return is_decoded, artifact.launch(fitted, *jobs[0].thresholds)

    @staticmethod
    def fetch(
        artifact: Artifact, jobs: "Sequence[CodedJob]", launched: tuple[list[bool], Launched]
    ) -> list[Found | None]:
        found = iter(artifact.fetch(launched[1]))
        return [next(found) if is_decoded else None for is_decoded in launched[0]]


class TiledJob(DetectorJob[list[Found]], frozen=True):
    """Detect in some windows of a large photograph, as `Artifact.detect_image` does with tiles.

    photo: the part of the photograph that holds the windows. The result has the detections of each window,
    for `merge_tiles`.
    """

    photo: Photo
    windows: list[Window]

    @property
    def images(self) -> int:
        return len(self.windows)

    @property
    def nbytes(self) -> int:
        return self.photo.pixels.nbytes

    @staticmethod
    def launch(artifact: Artifact, jobs: "Sequence[TiledJob]", prepared: Any = None) -> Launched:
        views = [view for job in jobs for view in views_of(job.photo, job.windows)]
        return artifact.launch(views, *jobs[0].thresholds)

    @staticmethod
    def fetch(artifact: Artifact, jobs: "Sequence[TiledJob]", launched: Launched) -> list[list[Found]]:
        found = iter(artifact.fetch(launched))
        return [list(itertools.islice(found, job.images)) for job in jobs]


class CanvasJob(DetectorJob[Outputs], frozen=True):
    """Detect in canvases, uint8 [n, c, h, w] on the CPU, n >= 1, shaped as the artifact's `canvas` says."""

    canvases: Tensor

    @property
    def images(self) -> int:
        return len(self.canvases)

    @property
    def nbytes(self) -> int:
        return self.canvases.nbytes

    @staticmethod
    def launch(
        artifact: Artifact, jobs: "Sequence[CanvasJob]", prepared: Any = None
    ) -> tuple[list[str], HostCopy]:
        canvases, parts = jobs[0].canvases, [job.canvases for job in jobs]
        is_on_gpu = artifact.device.type == "cuda"
        if is_on_gpu or len(parts) > 1:  # pinned memory is copied to a GPU without a wait
            sizes = [sum(map(len, parts)), *canvases.shape[1:]]
            canvases = torch.cat(parts, out=torch.empty(sizes, dtype=canvases.dtype, pin_memory=is_on_gpu))
        found = artifact.detect(canvases, *jobs[0].thresholds)
        return [*found], to_host([*found.values()])

    @staticmethod
    def fetch(
        artifact: Artifact, jobs: "Sequence[CanvasJob]", launched: tuple[list[str], HostCopy]
    ) -> list[Outputs]:
        columns = dict(zip(launched[0], launched[1].wait(), strict=True))
        columns["counts"] = columns["counts"].astype(np.int32)
        ends = list(itertools.accumulate(job.images for job in jobs))
        return [
            {name: column[end - job.images : end] for name, column in columns.items()}
            for job, end in zip(jobs, ends, strict=True)
        ]


class Loss(NamedTuple):
    """value: the loss. gradient: d loss / d predictions; None if not requested, or without one."""

    value: float
    gradient: NDArray[Any] | None


class LossJob(Job[Loss], frozen=True):
    """Compute the loss of predictions with their targets, [..., 4] each, and its gradient on request."""

    predictions: Tensor
    targets: Tensor
    gradient: bool

    @property
    def nbytes(self) -> int:
        return self.predictions.nbytes + self.targets.nbytes

    @staticmethod
    def launch(artifact: Artifact, jobs: "Sequence[LossJob]", prepared: Any = None) -> list[Loss]:
        losses = []
        for job in jobs:
            if job.gradient:
                value, gradient = artifact.loss_and_gradient(job.predictions, job.targets)
                losses.append(Loss(value, None if gradient is None else gradient.numpy()))
            else:
                losses.append(Loss(artifact.loss(job.predictions, job.targets), None))
        return losses

    @staticmethod
    def fetch(artifact: Artifact, jobs: "Sequence[LossJob]", launched: list[Loss]) -> list[Loss]:
        return launched
