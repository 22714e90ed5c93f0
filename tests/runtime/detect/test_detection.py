"""Detections as JSON."""

import numpy as np
import torch

from lensbox.runtime import Detections
from lensbox.runtime.detect.detection import DetectionArrays, detections_to_json

BOXES, SCORES = torch.tensor([[1.0, 2, 3, 4.5], [5, 6, 7, 8]]), torch.tensor([0.5, 0.25])


def test_box_and_score_alone_and_nothing_found() -> None:
    assert detections_to_json(Detections(BOXES, SCORES), ()) == [
        {"box": [1, 2, 3, 4.5], "score": 0.5},
        {"box": [5, 6, 7, 8], "score": 0.25},
    ]
    empty = Detections(torch.zeros(0, 4), torch.zeros(0), torch.zeros(0).long(), {"age": torch.zeros(0)})
    assert detections_to_json(empty, ("a",)) == []


def test_labels_are_names_extras_are_nested_and_only_finite_numbers_are_numbers() -> None:
    extras = {
        "keypoints": torch.arange(8.0).view(2, 2, 2),
        "embedding": torch.tensor([[0.5, torch.nan], [torch.inf, -torch.inf]]),
        "cell": torch.tensor([2**62 + 1, 3]),
    }
    found = Detections(BOXES, SCORES, torch.tensor([1, 0]), extras)
    assert detections_to_json(found, ("red", "blue")) == [
        {
            "box": [1, 2, 3, 4.5],
            "score": 0.5,
            "label": "blue",
            "extras": {"keypoints": [[0, 1], [2, 3]], "embedding": [0.5, None], "cell": 2**62 + 1},
        },
        {
            "box": [5, 6, 7, 8],
            "score": 0.25,
            "label": "red",
            "extras": {"keypoints": [[4, 5], [6, 7]], "embedding": [None, None], "cell": 3},
        },
    ]


def test_arrays_are_written_as_tensors_are() -> None:
    extras = {"embedding": np.array([[0.5, np.nan], [2.0, 0.0]], np.float32)}
    arrays = DetectionArrays(BOXES.numpy(), SCORES.numpy(), np.array([1, 0]), extras, 8, 9)
    copied = arrays.copied()
    assert detections_to_json(arrays, ("red", "blue")) == detections_to_json(copied, ("red", "blue"))
    assert (copied.width, copied.height) == (8, 9)
    for values, array in ((copied.boxes, arrays.boxes), (copied.extras["embedding"], extras["embedding"])):
        assert not np.shares_memory(values.numpy(), array)
