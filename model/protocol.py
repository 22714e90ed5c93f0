"""The members that a module needs for an export, and what they get; see docs/your_detector.md."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn

from lensbox.common.canvas import Canvas
from lensbox.model.specification import DetectorSpec


class Detector(Protocol):
    """A `torch.nn.Module` that `torch.jit.script` takes, with these two members.

    Lensbox adds the other steps: it fits images of any sizes to the canvas (`lensbox::fit`), converts
    boxes and points to pixels of the photographs, and has a GIoU loss. A detector may replace each step by a
    method of `OptionalMethods`.
    """

    @property
    def specification(self) -> DetectorSpec:
        """Set this in `__init__`: `self.specification = DetectorSpec(height=192, width=320)`."""

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        """Return the detections of each canvas, best first. Lensbox calls it without gradients.

        images: uint8 [B, channels, height, width], or float32 if the specification has mean and std;
        thresholds: 0 to 1. Return by name, for up to K detections,
            boxes    float32 [B, K, 4]   x1, y1, x2, y2 in canvas pixels
            scores   float32 [B, K]      0 to 1, descending
            counts   int32 or int64 [B]  number of detections; later slots are ignored
        and, if the specification has `classes`,
            labels   int64 [B, K]        an index into them
        and for each name in its `points` and `values`
            NAME     [B, K, *shape]      float32; values may be int64, too
        """


class OptionalMethods(Detector, Protocol):
    """Optional methods of a detector. Each replaces Lensbox's own method, but for `onnx_translations`."""

    def preprocess(self, images: list[Tensor], windows: Tensor | None) -> tuple[Tensor, Tensor]:
        """Fit images of any sizes, uint8 [C, H, W] with C = 1, 3 or 4, to canvases for `detect`.

        windows: float32 [B, 6], or None: see `lensbox.ops.canvas.geometry_of_windows`. Return canvases, uint8
        [B, channels, height, width], and the geometry for `restore`, float32 [B, 6].
        """

    def restore(self, boxes: Tensor, geometry: Tensor) -> Tensor:
        """Return boxes of `detect`, [B, K, 4], in pixels of the photographs."""

    def restore_points(self, points: Tensor, geometry: Tensor) -> Tensor:
        """Return points of `detect`, [B, K, ..., 2], in pixels of the photographs."""

    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return a scalar for boxes [..., 4] and their targets. A target whose y2 is 0 is padding."""

    def onnx_translations(self) -> Mapping[Any, Callable[..., Any]]:
        """Return a function of onnxscript for each operator of your own that `detect` calls.

        The keys are operators such as `torch.ops.example.peaks.default`: torch.onnx.export's
        custom_translation_table. Only the export to ONNX calls this method.
        """


class Normalise(nn.Module):
    """Convert canvases, uint8 [B, C, H, W], to what `Detector.detect` gets.

    (level / 255 - mean) / std in float32 if the canvas has a mean; else the canvases themselves.
    """

    is_normalised: Final[bool]
    white: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, canvas: Canvas) -> None:
        super().__init__()
        self.is_normalised = len(canvas.mean) > 0
        if self.is_normalised:  # tensors: a GPU multiplies by the inverse of a Python number
            for name, values in (("white", [255.0]), ("mean", canvas.mean), ("std", canvas.std)):
                self.register_buffer(name, torch.tensor(values).view(-1, 1, 1), persistent=False)

    def forward(self, canvases: Tensor) -> Tensor:
        """Return the numbers, float32 [B, C, H, W], or the canvases."""
        if self.is_normalised:
            canvases = (canvases.float() / self.white - self.mean) / self.std
        return canvases
