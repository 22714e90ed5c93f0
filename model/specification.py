"""The description of a detector: its canvas, its classes, and its outputs beside boxes and scores."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal

MAX_CANVAS_SIDE = 1 << 14
MAX_CLASSES = 10_000
MAX_NAME_LENGTH = 200
MAX_EXTRAS = 100
MAX_EXTRA_DIMENSIONS = 8
MAX_EXTRA_SIZE = 1 << 16
# Names of `detect`'s own outputs.
OUTPUTS = ("boxes", "scores", "counts", "labels")


@dataclasses.dataclass(frozen=True)
class DetectorSpec:
    """Describe the input of a detector and the names of its outputs. Raise ValueError naming a wrong field.

    height, width: sides of the canvas that images are fitted to, in pixels, 1 to 16,384.
    channels: of the canvas, 1 for gray and 3 for RGB; images are converted to it.
    fill: gray level of the padding around images of another shape, 0 to 255.
    name: of the detector, for people.
    classes: names by label; empty for a detector of one kind, which returns no labels.
    points: further outputs that hold points, xy in canvas pixels, and their shape per detection, which ends
        with 2: `{"keypoints": (5, 2)}`. They are restored to pixels of the photograph, as boxes are.
    values: further outputs that stay as they are, and their shape per detection: `{"embedding": (128,)}`.
    score_threshold, iou_threshold: the defaults that the artifact carries, 0 to 1.
    orientation: "exif" to turn photographs upright, "stored" to leave them as their pixels lie.
    jpeg_oversampling: a JPEG file may be decoded at a reduced scale as long as each side keeps this many
        times the pixels that the canvas needs; 0: always in full.
    """

    height: int
    width: int
    channels: int = 3
    fill: int = 0
    name: str = "detector"
    classes: Sequence[str] = ()
    points: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    values: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    score_threshold: float = 0.5
    iou_threshold: float = 0.5
    orientation: Literal["exif", "stored"] = "exif"
    jpeg_oversampling: int = 2

    def __post_init__(self) -> None:
        for side in ("height", "width"):
            _check_integer(side, getattr(self, side), 1, MAX_CANVAS_SIDE)
        _check_integer("fill", self.fill, 0, 255)
        _check_integer("jpeg_oversampling", self.jpeg_oversampling, 0, 1000)
        if self.channels not in (1, 3):
            raise ValueError(f"channels must be 1 (gray) or 3 (RGB), got {self.channels!r}")
        if self.orientation not in ("exif", "stored"):
            raise ValueError(f'orientation must be "exif" or "stored", got {self.orientation!r}')
        for threshold in ("score_threshold", "iou_threshold"):
            value = getattr(self, threshold)
            if not isinstance(value, (int, float)) or not 0 <= value <= 1:
                raise ValueError(f"{threshold} must be a number between 0 and 1, got {value!r}")
        _check_name("name", self.name)
        _check_classes(self.classes)
        _check_extras(self.points, self.values)

    @property
    def extras(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of `points` and `values`, in this order, by name."""
        return {name: tuple(shape) for name, shape in {**self.points, **self.values}.items()}


def _check_integer(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} must be an integer from {least} to {most}, got {value!r}")


def _check_name(name: str, value: object) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_NAME_LENGTH:
        raise ValueError(f"{name} must be a text of 1 to {MAX_NAME_LENGTH} characters, got {value!r}")


def _check_classes(classes: Sequence[str]) -> None:
    if isinstance(classes, str) or not isinstance(classes, Sequence) or len(classes) > MAX_CLASSES:
        raise ValueError(f"classes must be a sequence of at most {MAX_CLASSES} names, got {classes!r}")
    for label, name in enumerate(classes):
        _check_name(f"classes[{label}]", name)
    if len(set(classes)) < len(classes):
        raise ValueError(f"classes must have different names, got {list(classes)}")


def _check_extras(points: Mapping[str, Sequence[int]], values: Mapping[str, Sequence[int]]) -> None:
    if set(points) & set(values):
        raise ValueError(
            f"a name must stand in points or in values, got {sorted(set(points) & set(values))} in both"
        )
    if len(points) + len(values) > MAX_EXTRAS:
        raise ValueError(f"points and values must be at most {MAX_EXTRAS}, got {len(points) + len(values)}")
    for field, extras in (("points", points), ("values", values)):
        for name, shape in extras.items():
            if not isinstance(name, str) or not name.isidentifier() or not name.isascii() or name in OUTPUTS:
                raise ValueError(
                    f"the names of {field} must be identifiers other than {', '.join(OUTPUTS)}, got {name!r}"
                )
            _check_shape(f"{field}[{name!r}]", shape)
            if field == "points" and (not shape or shape[-1] != 2):
                raise ValueError(f"{field}[{name!r}] must end with 2, for x and y, got {tuple(shape)}")


def _check_shape(name: str, shape: Sequence[int]) -> None:
    if len(shape) > MAX_EXTRA_DIMENSIONS:
        raise ValueError(f"{name} must have at most {MAX_EXTRA_DIMENSIONS} dimensions, got {tuple(shape)}")
    if not all(type(side) is int and side >= 1 for side in shape):
        raise ValueError(f"{name} must be a shape of positive integers, got {tuple(shape)}")
    if math.prod(shape) > MAX_EXTRA_SIZE:
        raise ValueError(f"{name} must hold at most {MAX_EXTRA_SIZE} numbers, got {tuple(shape)}")
