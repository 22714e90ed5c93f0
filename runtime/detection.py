"""What a detector finds."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Detections:
    """The faces of one image, best first, on the CPU.

    boxes: float32 [n, 4], xyxy in pixels of the original image; scores: float32 [n], 0..1.
    """

    boxes: Tensor
    scores: Tensor
