"""Artifacts whose files compute `detect` alone: ONNX models and machine code."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from lensbox.artifact.metadata import ArtifactMetadata, Canvas
from lensbox.common.errors import ArtifactError
from lensbox.ops.canvas import cut_into_batches, fit_to_canvases, restore_boxes, restore_points
from lensbox.runtime.artifact import Artifact

# Canvases, uint8 [B, c, h, w] on the device, contiguous, with B from 1, and thresholds of scores and IoU, to
# outputs by name.
Run = Callable[[Tensor, float, float], Mapping[str, Tensor]]


class DetectOnlyMethods:
    """The methods of the newest format: `detect` is the file's, the others are Lensbox's own functions.

    They are those that `lensbox export` gives to a detector that brings none itself.
    """

    def __init__(
        self, run: Run, canvas: Canvas, device: torch.device, has_loss: bool = True, batch: int | None = None
    ) -> None:
        """has_loss: not where the detector has one of its own, which lies in its TorchScript artifact.
        batch: the one size of batches that `run` takes; None for any."""
        self._run = in_batches(run, batch)
        self._canvas = canvas
        self._device = device
        self.loss = torch.ops.lensbox.masked_giou_loss if has_loss else None

    def preprocess(self, images: list[Tensor], windows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """See `fit_to_canvases`."""
        return fit_to_canvases(images, windows, *self._canvas.as_tuple)

    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Boxes, scores and counts. Raises ValueError for other canvases than the detector's."""
        found = self.detect_named(images, score_threshold, iou_threshold)
        return found["boxes"], found["scores"], found["counts"]

    def detect_named(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> Mapping[str, Tensor]:
        """All outputs by name. Raises ValueError for other canvases than the detector's."""
        canvas = [self._canvas.channels, self._canvas.height, self._canvas.width]
        if images.dtype != torch.uint8:
            raise ValueError(f"images must be uint8, got {str(images.dtype).removeprefix('torch.')}")
        if images.dim() != 4 or list(images.shape[1:]) != canvas:
            raise ValueError(
                f"images must have the shape [B, C, H, W] with C, H, W = {canvas}, got {list(images.shape)}"
            )
        if images.device.type != self._device.type or self._device.index not in (None, images.device.index):
            raise ValueError(f"images must be on {self._device}, got {images.device}")
        if images.shape[0] == 0:  # of which not every operator of every runtime is sure
            found = self.detect_named(images.new_zeros(1, *images.shape[1:]), score_threshold, iou_threshold)
            return {name: value[:0] for name, value in found.items()}
        return self._run(images.contiguous(), score_threshold, iou_threshold)

    def restore(self, boxes: Tensor, geometry: Tensor) -> Tensor:
        """See `restore_boxes`."""
        return restore_boxes(boxes, geometry)

    def restore_points(self, points: Tensor, geometry: Tensor) -> Tensor:
        """See `lensbox.ops.canvas.restore_points`."""
        return restore_points(points, geometry)


def in_batches(run: Run, batch: int | None) -> Run:
    """Return a `Run` for any batch, which it cuts and fills if `run` takes batches of one size only."""
    if batch is None:
        return run

    def cut(images: Tensor, score_threshold: float, iou_threshold: float) -> Mapping[str, Tensor]:
        parts = [run(part, score_threshold, iou_threshold) for part in cut_into_batches(images, [batch])]
        return {name: torch.cat([part[name] for part in parts])[: len(images)] for name in parts[0]}

    return cut


def detect_only_artifact(run: Run, metadata: ArtifactMetadata, device: torch.device) -> Artifact:
    """Return the artifact whose `detect` is `run`."""
    methods = DetectOnlyMethods(run, metadata.canvas, device, "loss" in metadata.methods, metadata.batch)
    return Artifact(methods, metadata, device)


def by_name(found: Sequence[Tensor], outputs: Sequence[str]) -> Mapping[str, Tensor]:
    """Name the tensors that `detect` gave, in the order of the metadata's `outputs`.

    Raises ArtifactError for another number of tensors.
    """
    if len(found) != len(outputs):
        raise ArtifactError(f"detect must give {', '.join(outputs)}, got {len(found)} tensors")
    return dict(zip(outputs, found, strict=True))
