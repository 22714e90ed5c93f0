"""Short notations of labels and detections of an image."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lensbox.evaluation.average_precision import Labels, Matches, Predictions


def labels(*boxes: Sequence[float], ignore: Sequence[int] = ()) -> Labels:
    """Return the labels of one image. ignore: indices of boxes that count neither as hits nor as misses."""
    array = np.array(boxes, float).reshape(-1, 4)
    flags = np.array([i in ignore for i in range(len(array))], bool)
    return Labels(array, flags, np.zeros(len(array), np.int64), areas_of(array))


def areas_of(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.prod(boxes[:, 2:] - boxes[:, :2], 1))


def matched(truth: Sequence[Labels], detections: Sequence[Predictions], classes: int = 1) -> Matches:
    """Return the matches of all images."""
    matches = Matches(classes)
    for one, other in zip(truth, detections, strict=True):
        matches.add(one, other)
    return matches


def found(*rows: Sequence[float]) -> Predictions:
    """Return the detections in one image. rows: four coordinates and a score."""
    array = np.array(rows, float).reshape(-1, 5)
    return Predictions(array[:, :4], array[:, 4], np.zeros(len(array), np.int64))


def random_case(seed: int) -> tuple[list[Labels], list[Predictions]]:
    """Return boxes in 12 images, and detections near some of them. An odd seed gives equal scores."""
    rng = np.random.default_rng(seed)
    truth, detections = [], []
    for _ in range(12):
        count = int(rng.integers(1, 15))
        height = np.exp(rng.uniform(np.log(3), np.log(60), count))
        width = height * rng.uniform(0.6, 1.2, count)
        corner = rng.uniform(0, 140, (count, 2))
        boxes = np.concatenate([corner, corner + np.stack([width, height], 1)], 1)
        guesses = int(rng.integers(0, 40))
        noise = rng.normal(0, 1, (guesses, 4)) * rng.choice([0.2, 1.0, 3.0], (guesses, 1))
        guess = boxes[rng.integers(0, count, guesses)] + noise
        scores = rng.random(guesses)
        if seed % 2:
            scores = np.round(scores, 1)
        flags = rng.random(count) < 0.2
        truth.append(Labels(boxes, flags, np.zeros(count, np.int64), areas_of(boxes)))
        detections.append(Predictions(guess, scores, np.zeros(guesses, np.int64)))
    return truth, detections
