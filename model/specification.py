"""The description of a detector: its canvas, its classes, and its further outputs."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo, field_validator
from pydantic.dataclasses import dataclass

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
