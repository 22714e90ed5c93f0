"""The numbers that a detector's network gets for the levels of a canvas."""

from typing import Final

import torch
from torch import Tensor, nn

from lensbox.common.canvas import Canvas


class Numbers(nn.Module):
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
