"""The canvas of a detector, and how images become canvases."""

from dataclasses import fields
from typing import Annotated, Literal

from pydantic import Field, Strict, ValidationInfo, field_validator
from pydantic.dataclasses import dataclass

from lensbox.common.fields import STRICT, Channels, GrayLevel, Side

Fit = Literal["letterbox", "stretch", "crop", "ultralytics", "ultralytics_shrink"]
Filter = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos", "opencv_linear"]
Order = Literal["gray", "rgb", "bgr"]  # of an op's canvases; a `Canvas` has `channels`, too
# In float32, differences of levels divided by such numbers are finite.
_Means = Annotated[tuple[Annotated[float, Field(ge=-1e6, le=1e6)], ...], Strict(False)]
_Deviations = Annotated[tuple[Annotated[float, Field(ge=1e-6, le=1e6)], ...], Strict(False)]


@dataclass(frozen=True, config=STRICT)
class Canvas:
    """The canvas to which images are fitted.

    height, width: in pixels. channels: 1 (gray) or 3 (colours). fill: gray level of the padding.
    fit, filter: see `lensbox.ops.fit`. order: of three channels. mean, std: for each channel, in its order;
    empty, or the numbers of the network are (level / 255 - mean) / std. Canvases always hold levels.
    """

    height: Side
    width: Side
    channels: Channels = 1
    fill: GrayLevel = 0
    fit: Fit = "letterbox"
    filter: Filter = "bilinear"
    order: Literal["rgb", "bgr"] = "rgb"
    mean: _Means = ()
    std: Annotated[_Deviations, Field(validate_default=True)] = ()

    @field_validator("mean")
    @classmethod
    def _check_mean(cls, mean: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        if mean and len(mean) != info.data.get("channels", len(mean)):
            raise ValueError("must be numbers, one for each channel, or none")
        return mean

    @field_validator("std")
    @classmethod
    def _check_std(cls, std: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        if len(std) != len(info.data.get("mean", std)):
            raise ValueError("must be numbers, as many as mean")
        return std

    @classmethod
    def of(cls, specification: "Canvas") -> "Canvas":
        """Return the canvas of a specification, which has more fields."""
        return cls(**{each.name: getattr(specification, each.name) for each in fields(cls)})

    @property
    def canvas_shape(self) -> tuple[int, int, int]:
        """Return channels, height and width."""
        return self.channels, self.height, self.width

    @property
    def as_tuple(self) -> tuple[int, int, int, int, str, str, str]:
        """Return the arguments of `fit_to_canvases` after the images."""
        return self.height, self.width, self.channels, self.fill, self.fit, self.filter, self.order
