"""What a self-test is made of, once it is found."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Choice:
    """A picture, uint8 [C, H, W], and thresholds at which a detector finds `count` things in it, clearly."""

    image: Tensor
    score_threshold: float
    iou_threshold: float
    count: int
