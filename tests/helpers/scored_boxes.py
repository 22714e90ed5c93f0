"""Short notations of labels and detections of an image."""

from collections.abc import Sequence

import numpy as np

from lensbox.train.evaluation.average_precision import ImageDetections, ImageLabels


def labels(*boxes: Sequence[float], ignore: Sequence[int] = ()) -> ImageLabels:
    """Return the labels of one image. ignore: indices of boxes that count neither as hits nor as misses."""
    array = np.array(boxes, float).reshape(-1, 4)
    return ImageLabels(array, np.array([i in ignore for i in range(len(array))], bool))


def found(*rows: Sequence[float]) -> ImageDetections:
    """Return the detections in one image. rows: four coordinates and a score."""
    array = np.array(rows, float).reshape(-1, 5)
    return ImageDetections(array[:, :4], array[:, 4])
