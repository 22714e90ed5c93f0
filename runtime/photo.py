"""A photograph in memory."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Photo:
    """The pixels of a photograph, or of a part of it, at any scale, and where they lie in it.

    pixels: uint8 [C, h, w], C = 1 (gray), 3 (RGB) or 4 (RGBA), of any strides. width, height: of the upright
    photograph at full size, in pixels. window: x1, y1, x2, y2, the rectangle of the photograph that `pixels`
    show, in pixels of the photograph; it may reach beyond its edges. Boxes are found in pixels of the
    photograph, whatever its window.
    """

    pixels: Tensor
    width: int
    height: int
    window: tuple[float, float, float, float]

    @classmethod
    def of(cls, pixels: Tensor) -> "Photo":
        """A whole photograph at full size, uint8 [C, H, W]. Raises ValueError for another shape."""
        if pixels.dim() != 3:
            raise ValueError(f"pixels must have the shape [C, H, W], got {list(pixels.shape)}")
        height, width = pixels.shape[1:]
        return cls(pixels, width, height, (0, 0, width, height))
