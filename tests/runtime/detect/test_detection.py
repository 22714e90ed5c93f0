"""Detections as JSON."""

import numpy as np
import torch

from lensbox.runtime import Detections
from lensbox.runtime.detect.detection import as_tensors, detections_of_json

BOXES, SCORES = torch.tensor([[1.0, 2, 3, 4.5], [5, 6, 7, 8]]), torch.tensor([0.5, 0.25])


def test_box_and_score_alone_and_nothing_found() -> None:
    rows = [{"box": [1, 2, 3, 4.5], "score": 0.5}, {"box": [5, 6, 7, 8], "score": 0.25}]
    found = Detections(BOXES, SCORES, width=8, height=9)
    assert found.to_json() == {"width": 8, "height": 9, "detections": rows}
    empty = Detections(torch.zeros(0, 4), torch.zeros(0), torch.zeros(0).long(), {"age": torch.zeros(0)})
    assert empty.to_json(("a",))["detections"] == []


def test_labels_are_names_extras_are_nested_and_only_finite_numbers_are_numbers() -> None:
    extras = {
        "keypoints": torch.arange(8.0).view(2, 2, 2),
        "embedding": torch.tensor([[0.5, torch.nan], [torch.inf, -torch.inf]]),
        "cell": torch.tensor([2**62 + 1, 3]),
    }
    found = Detections(BOXES, SCORES, torch.tensor([1, 0]), extras)
    answer = found.to_json(("red", "blue"))
    again = detections_of_json(answer, ("red", "blue"))
    for name in ("keypoints", "cell"):
        assert torch.equal(again.extras[name], extras[name])
    assert again.labels is not None
    assert again.labels.tolist() == [1, 0]
    assert torch.equal(again.boxes, BOXES)
    assert answer["detections"] == [
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
    arrays = Detections(BOXES.numpy(), SCORES.numpy(), np.array([1, 0]), extras, 8, 9)
    copied = as_tensors(arrays)
    assert arrays.to_json(("red", "blue")) == copied.to_json(("red", "blue"))
    for values, array in ((copied.boxes, arrays.boxes), (copied.extras["embedding"], extras["embedding"])):
        assert not np.shares_memory(values.numpy(), array)
