"""The members that a module needs for an export, its description among them; see docs/your_detector.md."""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Annotated, Any, Final, Protocol

import torch
from pydantic import AfterValidator, ValidationInfo, field_validator
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from lensbox.common.canvas import Canvas
from lensbox.common.fields import (
    EXTRAS,
    STRICT,
    Channels,
    Classes,
    Fraction,
    Identifier,
    Name,
    Orientation,
    Oversampling,
    Shape,
    plain_errors,
)


def _ends_with_two(shape: tuple[int, ...]) -> tuple[int, ...]:
    if shape[-1:] != (2,):
        raise ValueError("must end with 2, for x and y")
    return shape


@plain_errors
@dataclass(frozen=True, config=STRICT)
class DetectorSpec(Canvas):
    """The input of a detector and the names of its outputs. Raise ValueError that names a wrong field.

    height, width: sides of the canvas that images are fitted to, in pixels, 1 to 16,384.
    channels: of the canvas, 1 for gray and 3 for RGB; images are converted.
    fill: gray level of the padding around images with another aspect ratio, 0 to 255.
    fit: how images are fitted: "letterbox", "stretch", "crop", "ultralytics" or "ultralytics_shrink".
    filter: of Pillow's `Resampling`, in lower case, or "opencv_linear". See `lensbox.ops.fit`.
    order: "rgb", or "bgr" for networks trained with OpenCV's order of channels.
    mean, std: one number for each channel, in its order, or none. With these numbers, `detect` gets
    (level / 255 - mean) / std in float32 instead of levels.
    name: of the detector, for people.
    classes: names by label; empty for a detector without labels.
    points: outputs that hold points, xy in canvas pixels, with their shape per detection, which ends with 2:
        `{"keypoints": (5, 2)}`. Lensbox converts them to pixels of the photograph, as it does boxes.
    values: other outputs, with their shape per detection: `{"embedding": (128,)}`.
    score_threshold, iou_threshold: defaults of the artifact, 0 to 1.
    orientation: "exif" to turn photographs upright, "stored" to keep the orientation of the pixels.
    jpeg_oversampling: a JPEG file may be decoded at a reduced scale whose sides are at least this many times
        the size in the canvas; 0: always at full scale.
    """

    channels: Channels = 3
    name: Name = "detector"
    classes: Classes = ()
    points: Annotated[Mapping[Identifier, Annotated[Shape, AfterValidator(_ends_with_two)]], EXTRAS] = field(
        default_factory=dict
    )
    values: Annotated[Mapping[Identifier, Shape], EXTRAS] = field(default_factory=dict)
    score_threshold: Fraction = 0.5
    iou_threshold: Fraction = 0.5
    orientation: Orientation = "exif"
    jpeg_oversampling: Oversampling = 2

    @field_validator("values")
    @classmethod
    def _check_names(cls, values: Mapping[str, Shape], info: ValidationInfo) -> Mapping[str, Shape]:
        if both := set(values) & set(info.data.get("points", ())):
            raise ValueError(f"must have other names than points, not {', '.join(sorted(both))}")
        return values

    @property
    def extras(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of `points` and `values`, in this order, by name."""
        return {**self.points, **self.values}

    @property
    def outputs(self) -> tuple[str, ...]:
        """Return the names of the outputs of `detect`, in the order of exported files."""
        return ("boxes", "scores", "counts", *(["labels"] if self.classes else []), *self.extras)


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
