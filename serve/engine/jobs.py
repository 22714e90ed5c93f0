"""Jobs of an engine. Jobs are plain data, so an engine can compute all jobs of a group in one batch."""

import itertools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from lensbox.runtime import Artifact, Photo
from lensbox.runtime.detect.detection import DetectionArrays
from lensbox.runtime.detect.tiles import Window, merge_tiles, views_of
from lensbox.runtime.detect.transfer import to_host
from lensbox.runtime.images.gpu_jpeg import CodedPhoto, decoded_photos, decoded_pixels

Result = TypeVar("Result", covariant=True)


class Job(Protocol[Result]):
    """A computation with the model, run in the engine's thread.

    group: jobs of equal groups may share a batch; None, the default: the job runs alone. images: number of
    places in a batch, by default 1. nbytes: size of its tensors. A job of several images can be split.
    prepares: whether the engine calls `prepare`. is_joined: whether even one part needs `joined`.
    """

    prepares: ClassVar[bool] = False
    is_joined: ClassVar[bool] = False

    @property
    def group(self) -> Hashable | None:
        return None

    @property
    def images(self) -> int:
        return 1

    @property
    def nbytes(self) -> int: ...

    @staticmethod
    def prepare(artifact: Artifact, jobs: Sequence[Any]) -> Any:
        """Return what `run` needs. Called in another thread, beside `run` of other jobs."""
        return None

    @staticmethod
    def run(artifact: Artifact, jobs: Sequence[Any], prepared: Any = None) -> Sequence[Result]:
        """Return one result per job, in order, from one call of the model. All jobs are of one group.

        prepared: the result of `prepare` for these jobs; None if it was not called.
        """
        ...

    def parts(self, largest: int) -> "Iterator[Job[Any]]":
        """Split into jobs of at most `largest` images."""
        yield self

    def joined(self, results: Sequence[Any]) -> Result:
        """Return the result of this job from the results of all its parts."""
        result: Result = results[0]
        return result


@dataclass(frozen=True)
class DetectJob(Job[DetectionArrays]):
    """Detect in one photograph. A threshold of None is the artifact's default."""

    photo: Photo
    score_threshold: float | None
    iou_threshold: float | None

    @property
    def group(self) -> Hashable:
        return "photos", self.score_threshold, self.iou_threshold

    @property
    def nbytes(self) -> int:
        return self.photo.pixels.nbytes

    @staticmethod
    def run(artifact: Artifact, jobs: "Sequence[DetectJob]", prepared: Any = None) -> list[DetectionArrays]:
        photos = [job.photo for job in jobs]
        return artifact.detect_arrays(photos, jobs[0].score_threshold, jobs[0].iou_threshold)


@dataclass(frozen=True)
class CodedJob(Job[DetectionArrays | None]):
    """Detect in a JPEG file that the GPU decodes. The result is None if the CPU must decode the file."""

    prepares: ClassVar[bool] = True
    photo: CodedPhoto
    score_threshold: float | None
    iou_threshold: float | None

    @property
    def group(self) -> Hashable:
        return "coded", self.score_threshold, self.iou_threshold

    @property
    def nbytes(self) -> int:
        return self.photo.file.nbytes

    @staticmethod
    def prepare(artifact: Artifact, jobs: "Sequence[CodedJob]") -> list[Tensor]:
        return decoded_pixels([job.photo for job in jobs], artifact.device, artifact.metadata.canvas)

    @staticmethod
    def run(
        artifact: Artifact, jobs: "Sequence[CodedJob]", prepared: list[Tensor] | None = None
    ) -> list[DetectionArrays | None]:
        pixels = CodedJob.prepare(artifact, jobs) if prepared is None else prepared
        photos = decoded_photos(pixels, [job.photo for job in jobs])
        decoded = [photo for photo in photos if photo is not None]
        found = iter(artifact.detect_arrays(decoded, jobs[0].score_threshold, jobs[0].iou_threshold))
        return [None if photo is None else next(found) for photo in photos]


@dataclass(frozen=True)
class TiledJob(Job[Any]):
    """Detect in the windows of a large photograph, as `Artifact.detect_image` does with tiles.

    The result of a part is the detections of each of its windows; `joined` makes `DetectionArrays` of them.
    """

    is_joined: ClassVar[bool] = True
    photo: Photo
    windows: Sequence[Window]
    score_threshold: float | None
    iou_threshold: float

    @property
    def images(self) -> int:
        return len(self.windows)

    @property
    def nbytes(self) -> int:
        return self.photo.pixels.nbytes

    @staticmethod
    def run(
        artifact: Artifact, jobs: "Sequence[TiledJob]", prepared: Any = None
    ) -> list[list[DetectionArrays]]:
        return [
            artifact.detect_arrays(views_of(job.photo, job.windows), job.score_threshold, job.iou_threshold)
            for job in jobs
        ]

    def parts(self, largest: int) -> "Iterator[TiledJob]":
        for start in range(0, self.images, largest):
            yield replace(self, windows=self.windows[start : start + largest])

    def joined(self, results: Sequence[list[DetectionArrays]]) -> DetectionArrays:
        parts = list(itertools.chain.from_iterable(results))
        return merge_tiles(parts, self.windows, self.photo.width, self.photo.height, self.iou_threshold)


Outputs = dict[str, Tensor]
"""The outputs of n canvases by name, on the CPU: see `Artifact.detect_named`; `counts` is int32 here."""


@dataclass(frozen=True)
class CanvasJob(Job[Outputs]):
    """Detect in canvases, uint8 [n, c, h, w] on the CPU, n >= 1, shaped as the artifact's `canvas` says.

    A threshold of None is the artifact's default.
    """

    canvases: Tensor
    score_threshold: float | None = None
    iou_threshold: float | None = None

    @property
    def group(self) -> Hashable:
        return "canvases", tuple(self.canvases.shape[1:]), self.score_threshold, self.iou_threshold

    @property
    def images(self) -> int:
        return len(self.canvases)

    @property
    def nbytes(self) -> int:
        return self.canvases.nbytes

    @staticmethod
    def run(artifact: Artifact, jobs: "Sequence[CanvasJob]", prepared: Any = None) -> list[Outputs]:
        canvases = _concatenated([job.canvases for job in jobs], pinned=artifact.device.type == "cuda")
        outputs = artifact.detect_named(canvases, jobs[0].score_threshold, jobs[0].iou_threshold)
        arrays = to_host(list(outputs.values()))
        columns = {name: torch.from_numpy(array) for name, array in zip(outputs, arrays, strict=True)}
        columns["counts"] = columns["counts"].int()
        sizes = [job.images for job in jobs]
        parts = {name: column.split(sizes) for name, column in columns.items()}
        return [{name: part[job] for name, part in parts.items()} for job in range(len(jobs))]

    def parts(self, largest: int) -> "Iterator[CanvasJob]":
        for canvases in self.canvases.split(largest):
            yield replace(self, canvases=canvases)

    def joined(self, results: Sequence[Outputs]) -> Outputs:
        return {name: torch.cat([part[name] for part in results]) for name in results[0]}


class Loss(NamedTuple):
    """value: the loss. gradient: d loss / d predictions on the CPU; None if not requested, or without one."""

    value: float
    gradient: Tensor | None


@dataclass(frozen=True)
class LossJob(Job[Loss]):
    """Compute the loss of predictions with their targets, [..., 4] each, and its gradient on request."""

    predictions: Tensor
    targets: Tensor
    gradient: bool

    @property
    def nbytes(self) -> int:
        return self.predictions.nbytes + self.targets.nbytes

    @staticmethod
    def run(artifact: Artifact, jobs: "Sequence[LossJob]", prepared: Any = None) -> list[Loss]:
        return [
            Loss(*artifact.loss_and_gradient(job.predictions, job.targets))
            if job.gradient
            else Loss(artifact.loss(job.predictions, job.targets), None)
            for job in jobs
        ]


def _concatenated(tensors: Sequence[Tensor], pinned: bool) -> Tensor:
    """Concatenate tensors along the first dimension; in pinned memory for the copy to a GPU."""
    if len(tensors) == 1 and not pinned:
        return tensors[0]
    length = sum(len(tensor) for tensor in tensors)
    batch = torch.empty([length, *tensors[0].shape[1:]], dtype=tensors[0].dtype, pin_memory=pinned)
    return torch.cat(list(tensors), out=batch)
