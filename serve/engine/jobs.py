"""What an engine can be asked for. Jobs are data, so those of one group are computed together."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from lensbox.runtime import Artifact, Detections, Photo

Result = TypeVar("Result", covariant=True)


class Job(Protocol[Result]):
    """Something to compute with the model, in the engine's thread.

    `group`: jobs of equal groups may be computed in one batch; None: this one runs alone. `images`: how many
    places of a batch it takes. `nbytes`: of its tensors. One of several images has parts.
    """

    @property
    def group(self) -> Hashable | None: ...

    @property
    def images(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @staticmethod
    def run(artifact: Artifact, jobs: Sequence[Any]) -> Sequence[Result]:
        """The results of jobs of one group, in their order, from one call of the model."""
        ...

    def parts(self, largest: int) -> "Iterator[Job[Result]]":
        """Jobs of `largest` images, the last of those that are left, which together are this one."""
        yield self

    def joined(self, results: Sequence[Any]) -> Result:
        """The result of this job from those of all its parts."""
        result: Result = results[0]
        return result


@dataclass(frozen=True)
class DetectJob(Job[Detections]):
    """What is in one photograph. A threshold of None is the artifact's default."""

    photo: Photo
    score_threshold: float | None
    iou_threshold: float | None

    @property
    def group(self) -> Hashable:
        return "photos", self.score_threshold, self.iou_threshold

    @property
    def images(self) -> int:
        return 1

    @property
    def nbytes(self) -> int:
        return self.photo.pixels.nbytes

    @staticmethod
    def run(artifact: Artifact, jobs: "Sequence[DetectJob]") -> list[Detections]:
        return artifact.detect_images(
            [job.photo for job in jobs], jobs[0].score_threshold, jobs[0].iou_threshold
        )


class CanvasDetections(NamedTuple):
    """What is in n canvases, on the CPU: the first counts[i] of the K slots of canvas i, best first.

    boxes: float32 [n, K, 4], xyxy in canvas pixels; scores: float32 [n, K]; counts: int64 [n]; labels: int64
    [n, K], indices into the artifact's `classes`, None where it has none; extras: by name, [n, K, ...], those
    that are points in canvas pixels.
    """

    boxes: Tensor
    scores: Tensor
    counts: Tensor
    labels: Tensor | None
    extras: Mapping[str, Tensor]


@dataclass(frozen=True)
class CanvasJob(Job[CanvasDetections]):
    """What is in canvases, uint8 [n, c, h, w] on the CPU, as the artifact's `canvas` says; n is at least 1.

    A threshold of None is the artifact's default. Raises ValueError for another dtype or number of
    dimensions.
    """

    canvases: Tensor
    score_threshold: float | None = None
    iou_threshold: float | None = None

    def __post_init__(self) -> None:
        dtype, shape = self.canvases.dtype, list(self.canvases.shape)
        if dtype != torch.uint8 or len(shape) != 4 or 0 in shape:
            name = str(dtype).removeprefix("torch.")
            raise ValueError(f"canvases must be uint8 [n, c, h, w], none of them 0, got {name} {shape}")

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
    def run(artifact: Artifact, jobs: "Sequence[CanvasJob]") -> list[CanvasDetections]:
        canvases = _together([job.canvases for job in jobs], pinned=artifact.device.type == "cuda")
        found = artifact.detect_named(canvases, jobs[0].score_threshold, jobs[0].iou_threshold)
        columns = {name: column.cpu() for name, column in found.items()}
        columns["counts"] = columns["counts"].long()
        sizes = [job.images for job in jobs]
        parts = {name: column.split(sizes) for name, column in columns.items()}
        return [
            _canvas_detections({name: part[job] for name, part in parts.items()}) for job in range(len(jobs))
        ]

    def parts(self, largest: int) -> "Iterator[CanvasJob]":
        for canvases in self.canvases.split(largest):
            yield replace(self, canvases=canvases)

    def joined(self, results: Sequence[CanvasDetections]) -> CanvasDetections:
        labels = [part.labels for part in results if part.labels is not None]
        return CanvasDetections(
            boxes=torch.cat([part.boxes for part in results]),
            scores=torch.cat([part.scores for part in results]),
            counts=torch.cat([part.counts for part in results]),
            labels=torch.cat(labels) if labels else None,
            extras={name: torch.cat([part.extras[name] for part in results]) for name in results[0].extras},
        )


def _canvas_detections(outputs: dict[str, Tensor]) -> CanvasDetections:
    boxes, scores, counts = (outputs.pop(name) for name in ("boxes", "scores", "counts"))
    return CanvasDetections(boxes, scores, counts, outputs.pop("labels", None), outputs)


def _together(tensors: Sequence[Tensor], pinned: bool) -> Tensor:
    """Tensors of one shape but for the first dimension as one; in pinned memory for a GPU to copy from."""
    if len(tensors) == 1 and not pinned:
        return tensors[0]
    length = sum(len(tensor) for tensor in tensors)
    batch = torch.empty([length, *tensors[0].shape[1:]], dtype=tensors[0].dtype, pin_memory=pinned)
    return torch.cat(list(tensors), out=batch)
