"""The canvas of a detector, and how images become canvases."""

from dataclasses import fields
from typing import Annotated, Literal

from pydantic import Field, Strict, ValidationInfo, field_validator
from pydantic.dataclasses import dataclass

from lensbox.common.fields import STRICT, Channels, GrayLevel, Side
from lensbox.common.fits import Filter, Fit

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

    @field_validator("mean", "std")
    @classmethod
    def _check_count(cls, numbers: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        of_mean = info.field_name == "mean"
        wanted = info.data.get("channels" if of_mean else "mean", numbers)
        count = wanted if isinstance(wanted, int) else len(wanted)
        if len(numbers) != count and (numbers or not of_mean):
            rule = "one for each channel, or none" if of_mean else "as many as mean"
            raise ValueError(f"must be numbers, {rule}")
        return numbers

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
