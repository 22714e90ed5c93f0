"""Artifacts whose files hold `detect`, and at most a loss: ONNX models, machine code and programs."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from lensbox.common.errors import ArtifactError
from lensbox.ops.canvas import (
    check_canvases,
    cut_into_batches,
    fit_to_canvases,
    restore_boxes,
    restore_points,
)
from lensbox.runtime.file.metadata import ArtifactMetadata

# Compute the outputs by name. Arguments: canvases, uint8 [B, c, h, w] on the device, contiguous, with B >= 1;
# thresholds of score and IoU.
Run = Callable[[Tensor, float, float], Mapping[str, Tensor]]
# Compute the loss of predictions and targets, [..., 4], with a gradient.
Loss = Callable[[Tensor, Tensor], Tensor]


class DetectOnlyMethods:
    """The methods of an artifact: `detect` of the file, and Lensbox's own functions for the other methods.

    `lensbox export` adds the same functions to a detector without its own methods.
    """

    restore = staticmethod(restore_boxes)
    restore_points = staticmethod(restore_points)

    def __init__(
        self, run: Run, metadata: ArtifactMetadata, device: torch.device, loss: Loss | None = None
    ) -> None:
        """loss: of the file; None for Lensbox's, if the detector has no other."""
        if loss is None and "loss" in metadata.methods:
            loss = torch.ops.lensbox.masked_giou_loss
        self._run = any_batch(run, [] if metadata.batch is None else [metadata.batch])
        self._canvas = metadata.canvas
        self._device = device
        self.loss = loss

    def preprocess(self, images: list[Tensor], windows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """See `fit_to_canvases`."""
        return fit_to_canvases(images, windows, *self._canvas.as_tuple)

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Mapping[str, Tensor]:
        """Return the outputs by name. Raise ValueError for another shape, dtype, device or threshold."""
        check_canvases(images, list(self._canvas.canvas_shape), score_threshold, iou_threshold)
        if images.device.type != self._device.type or self._device.index not in (None, images.device.index):
            raise ValueError(f"images must be on {self._device}, got {images.device}")
        if images.shape[0] == 0:  # not every operator of every runtime accepts an empty batch
            found = self.detect(images.new_zeros(1, *images.shape[1:]), score_threshold, iou_threshold)
            return {name: value[:0] for name, value in found.items()}
        return self._run(images.contiguous(), score_threshold, iou_threshold)


def any_batch(run: Run, sizes: list[int]) -> Run:
    """Return a `Run` for any batch size. sizes: those that `run` takes, largest first; none for any."""
    if not sizes:
        return run

    def cut(images: Tensor, score_threshold: float, iou_threshold: float) -> Mapping[str, Tensor]:
        parts = [run(part, score_threshold, iou_threshold) for part in cut_into_batches(images, sizes)]
        return {name: torch.cat([part[name] for part in parts])[: len(images)] for name in parts[0]}

    return cut


def detect_of_graph(call: Callable[[list[Tensor]], Sequence[Tensor]], outputs: Sequence[str]) -> Run:
    """Return `detect` of machine code or of a graph. call: takes canvases and thresholds, float64 [] on the
    CPU. outputs: names in their order. The result raises ArtifactError for another number of tensors."""

    def run(images: Tensor, *thresholds: float) -> Mapping[str, Tensor]:
        on_cpu = [torch.tensor(value, dtype=torch.float64, device="cpu") for value in thresholds]
        found = call([images, *on_cpu])
        if len(found) != len(outputs):
            raise ArtifactError(f"detect must give {', '.join(outputs)}, got {len(found)} tensors")
        return dict(zip(outputs, found, strict=True))

    return run
