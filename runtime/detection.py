"""What a detector finds."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Detections:
    """The faces of one image, best first, on the CPU.

    boxes: float32 [n, 4], xyxy in pixels of the original image; scores: float32 [n], 0..1.
    """

    boxes: Tensor
    scores: Tensor


class Extra(NamedTuple):
    """What a detector gives for each detection beside box, score and label.

    kind: "points", xy in canvas pixels, which `restore_points` takes to those of the photograph; or "values".
    """

    shape: tuple[int, ...]
    kind: Literal["points", "values"]


def detections(
    boxes: NDArray[np.float32], scores: NDArray[np.float32], counts: list[int]
) -> list[Detections]:
    """Those of each image of a batch: the first counts[b] of its boxes, [B, K, 4], and scores, [B, K]."""
    # Copies: a view would keep what was found in the whole batch. numpy's keep Python's lock, which threads
    # that decode images wait for at each call of torch.
    return [
        Detections(torch.from_numpy(of_image[:count].copy()), torch.from_numpy(best[:count].copy()))
        for of_image, best, count in zip(boxes, scores, counts, strict=True)
    ]
