"""Wrap any detector as a module with all methods of an artifact, or for batches of any size."""

from collections.abc import Collection, Sequence
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from lensbox.common.errors import ArtifactError
from lensbox.model import Detector
from lensbox.model.protocol import Normalise
from lensbox.ops.canvas import check_canvases, fit_to_canvases, restore_boxes, restore_points
from lensbox.runtime.formats.detect_only import any_batch

# Files that hold only `detect` use Lensbox's own versions of these methods.
_FIT_METHODS = ("preprocess", "restore", "restore_points")


class DetectorWrapper(nn.Module):
    """A detector with Lensbox's preprocess, restore and loss, unless the detector has its own.

    TorchScript compiles only the branch that applies: it knows while compiling what a module has.
    """

    canvas: Final[tuple[int, int, int, int, str, str, str]]
    shape: Final[tuple[int, int, int]]

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        specification = detector.specification
        self.canvas, self.shape = specification.as_tuple, specification.canvas_shape
        self.normalise = Normalise(specification)
        self.detector = cast(Any, detector)

    @torch.jit.export
    def preprocess(self, images: list[Tensor], windows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Call the detector's own method, or `fit_to_canvases`."""
        if hasattr(self.detector, "preprocess"):
            canvases, geometry = self.detector.preprocess(images, windows)
        else:
            canvases, geometry = fit_to_canvases(images, windows, *self.canvas)
        return canvases, geometry

    @torch.jit.export
    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        """Return the outputs of `Detector.detect`. Raise ValueError for bad input."""
        canvas = [self.shape[0], self.shape[1], self.shape[2]]
        check_canvases(images, canvas, score_threshold, iou_threshold)
        with torch.no_grad():
            outputs: dict[str, Tensor] = self.detector.detect(
                self.normalise(images), score_threshold, iou_threshold
            )
            return outputs

    @torch.jit.export
    def restore(self, boxes: Tensor, geometry: Tensor) -> Tensor:
        """Call the detector's own method, or `restore_boxes`."""
        if hasattr(self.detector, "restore"):
            restored: Tensor = self.detector.restore(boxes, geometry)
        else:
            restored = restore_boxes(boxes, geometry)
        return restored

    @torch.jit.export
    def restore_points(self, points: Tensor, geometry: Tensor) -> Tensor:
        """Call the detector's own method, or `lensbox.ops.canvas.restore_points`."""
        if hasattr(self.detector, "restore_points"):
            restored: Tensor = self.detector.restore_points(points, geometry)
        else:
            restored = restore_points(points, geometry)
        return restored

    @torch.jit.export
    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return the mean of 1 - GIoU (`lensbox.ops.masked_giou_loss`), or the detector's own loss."""
        if hasattr(self.detector, "loss"):
            loss: Tensor = self.detector.loss(predictions, targets)
        else:
            loss = torch.ops.lensbox.masked_giou_loss(predictions, targets)
        return loss


def own_methods(detector: Detector) -> list[str]:
    """Return the names of the optional methods that a detector has: see `OptionalMethods`."""
    return [name for name in (*_FIT_METHODS, "loss") if hasattr(detector, name)]


def omitted_methods(detector: Detector, kind: str) -> list[str]:
    """Return the own methods that a file with only `detect` can omit: at most `loss`.

    kind: the kind of file, such as "an ONNX file". Raise ArtifactError for own methods that detections need.
    """
    own = own_methods(detector)
    if fitting := [method for method in own if method in _FIT_METHODS]:
        raise ArtifactError(
            f"the detector's own {' and '.join(fitting)} cannot be exported: {kind} holds only detect, "
            "and its runtimes use Lensbox's methods (lensbox::fit)"
        )
    return own


def needed_ops(called: Collection[str], omitted: Collection[str]) -> tuple[str, ...]:
    """Return the schemas of the operators that a file with only `detect` and its runtimes call."""
    beside = [torch.ops.lensbox.fit.default]
    if "loss" not in omitted:
        beside.append(torch.ops.lensbox.masked_giou_loss.default)
    return tuple(sorted({*called, *(str(op._schema) for op in beside)}))


class FixedBatches(nn.Module):
    """A detector for any batch, around a network with fixed batch sizes."""

    def __init__(self, detector: Detector, sizes: Sequence[int]) -> None:
        super().__init__()
        self.specification = detector.specification
        self.detector = cast(Any, detector)
        self.sizes = sorted(sizes, reverse=True)

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        """See `Detector.detect`."""
        return dict(any_batch(self.detector.detect, self.sizes)(images, score_threshold, iou_threshold))
