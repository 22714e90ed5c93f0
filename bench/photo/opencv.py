"""OpenCV, where it is installed."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lensbox.artifact.metadata import Canvas
from lensbox.bench.peers.peer import UnavailableError
from lensbox.bench.photo.reference import fit


def load_opencv(threads: int) -> Any:
    """The module `cv2`, which computes with that many threads. Raises UnavailableError."""
    try:
        import cv2
    except ModuleNotFoundError as error:
        raise UnavailableError(
            "the Python package 'opencv-python-headless' is not installed; "
            "pip install 'lensbox[bench]' brings it"
        ) from error
    cv2.setNumThreads(threads)
    return cv2


def opencv_canvas(cv2: Any, gray: Any, canvas: Canvas) -> Tensor:
    """uint8 [height, width] -> [1, canvas.height, canvas.width], by the filter that averages areas."""
    height, width = gray.shape
    place = fit(width, height, canvas)
    whole = np.zeros((canvas.height, canvas.width), np.uint8)
    small = cv2.resize(gray, (place.width, place.height), interpolation=cv2.INTER_AREA)
    whole[place.top : place.top + place.height, place.left : place.left + place.width] = small
    return torch.from_numpy(whole)[None]
