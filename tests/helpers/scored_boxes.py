"""What images hold and what was found in them, written down shortly."""

from collections.abc import Sequence

import numpy as np

from lensbox.train.evaluation.average_precision import ImageDetections, ImageLabels


def labels(*boxes: Sequence[float], ignore: Sequence[int] = ()) -> ImageLabels:
    """Of one image. ignore: the indices of boxes that are neither to be found nor a mistake."""
    array = np.array(boxes, float).reshape(-1, 4)
    return ImageLabels(array, np.array([i in ignore for i in range(len(array))], bool))


def found(*rows: Sequence[float]) -> ImageDetections:
    """In one image. rows: four coordinates and a score."""
    array = np.array(rows, float).reshape(-1, 5)
    return ImageDetections(array[:, :4], array[:, 4])
