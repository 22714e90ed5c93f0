"""Differences that examples/torchvision_detector/compare.py reports. torchvision itself is not needed."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from programs import load_example
from torch import Tensor

BOX, FAR = [10.0, 10.0, 20.0, 20.0], [100.0, 100.0, 120.0, 120.0]


def theirs(*boxes: list[float], score: float = 0.9) -> dict[str, Tensor]:
    count = len(boxes)
    return {
        "boxes": torch.tensor(boxes).view(count, 4),
        "scores": torch.full([count], score),
        "labels": torch.ones(count, dtype=torch.long),
    }


def ours(*images: list[list[float]], score: float = 0.9) -> dict[str, Tensor]:
    """Return a detector with room for two detections."""
    boxes = torch.zeros(len(images), 2, 4)
    for index, image in enumerate(images):
        boxes[index, : len(image)] = torch.tensor(image).view(len(image), 4)
    scores, labels = torch.full([len(images), 2], score), torch.zeros(len(images), 2, dtype=torch.long)
    counts = torch.tensor(list(map(len, images)))
    return {"boxes": boxes, "scores": scores, "labels": labels, "counts": counts}


@pytest.mark.parametrize(
    ("mine", "found", "same"),
    [
        (ours([BOX], []), [theirs(BOX), theirs()], True),
        (ours([BOX], []), [theirs(BOX), theirs(BOX, score=0.5005)], True),  # at the threshold
        (ours([BOX, FAR]), [theirs(BOX)], False),
        (ours([BOX]), [theirs(BOX, FAR)], False),
    ],
)
def test_a_detection_of_one_side_alone_is_a_difference(
    mine: dict[str, Tensor], found: list[dict[str, Tensor]], same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs: dict[str, Any] = {
        "torchvision": SimpleNamespace(__version__="0"),
        "ssdlite": SimpleNamespace(CATEGORIES=["__background__", "person"], make_network=None),
    }
    for name, stub in stubs.items():
        monkeypatch.setitem(sys.modules, name, stub)
    program = load_example("torchvision_detector/compare.py", monkeypatch)
    assert program["report_differences"](mine, found, ["person"], 0.5) is same
