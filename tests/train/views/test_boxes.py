"""Boxes of views: which are targets, which are ignored, which find a slot."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lensbox.train.photographs import SIDE, StoreTensors, store_tensors
from lensbox.train.settings import TrainConfig
from lensbox.train.views.boxes import judge_boxes, map_boxes, select_boxes
from lensbox.train.views.tiles import TileMaps

CONFIG = TrainConfig().replace(max_targets=8, max_ignored=40)


def boxes_store(boxes: Tensor, ignore: Tensor | None = None) -> StoreTensors:
    """One black photograph of 400 x 400 pixels with these boxes."""
    flags = torch.zeros(len(boxes)).bool() if ignore is None else ignore
    pixels = torch.zeros(1, SIDE, SIDE, dtype=torch.uint8)
    return store_tensors(pixels, torch.tensor([[400, 400]]), [boxes], [flags], torch.ones(1), 16)


FACE, LOW = (0.0, 10.0, 100.0, 90.0), (0.0, 0.0, 40.0, 44.0)


def below(by: float) -> tuple[float, ...]:
    """A box that begins `by` px below y = 300. The photograph ends at y = 400, and the canvas goes on."""
    return (10.0, 300.0 + by, 90.0, 400.0 + by)


@pytest.mark.parametrize(
    ("box", "flagged", "scale", "offset", "expected", "judgement"),
    [
        (FACE, False, (1.0, 1.0), (0.0, 0.0), [0, 10, 100, 90], "target"),
        (FACE, False, (1.0, 1.0), (206.0, 0.0), [206, 10, 256, 90], "target"),  # half of it in view
        (FACE, False, (1.0, 1.0), (208.0, 0.0), [208, 10, 256, 90], "ignored"),
        (FACE, False, (1.0, 1.0), (242.0, 0.0), None, "dropped"),
        # Padding shows nothing of a box.
        (below(30), False, (0.5, 0.5), (0.0, 10.0), [5, 175, 45, 210], "target"),
        (below(70), False, (0.5, 0.5), (0.0, 10.0), [5, 195, 45, 210], "ignored"),
        (below(30), False, (-0.5, 0.5), (200.0, 10.0), [155, 175, 195, 210], "target"),  # mirrored
        # Low and flagged boxes are ignored.
        (LOW, False, (0.1, 0.1), (0.0, 0.0), None, "ignored"),
        ((0.0, 0.0, 40.0, 46.0), True, (0.1, 0.1), (0.0, 0.0), None, "ignored"),
    ],
)
def test_box_is_target_ignored_or_dropped(
    box: Any, flagged: bool, scale: Any, offset: Any, expected: Any, judgement: str
) -> None:
    store = boxes_store(torch.tensor([box]), torch.tensor([flagged]))
    maps = (torch.tensor([row]) for row in (scale, offset, [0.0, 0.0, 256.0, 256.0]))
    boxes, found, ignored = judge_boxes(map_boxes(store, TileMaps(torch.tensor([0]), *maps)), CONFIG)
    if expected is not None:
        assert boxes[0, 0].tolist() == expected
    assert (bool(found[0, 0]), bool(ignored[0, 0])) == (judgement == "target", judgement == "ignored")
    assert not (found | ignored)[0, 1:].any()


def test_crowds_keep_the_largest_and_ignore_the_rest() -> None:
    side = torch.linspace(20, 60, 40)[torch.randperm(40)][:, None]
    boxes = torch.cat([torch.zeros(40, 2), side, side], 1)[None]
    find = torch.ones(1, 40).bool()
    targets, ignored = select_boxes(boxes, find, ~find, CONFIG)
    assert targets[0, :, 2].tolist() == sorted(side[:, 0].tolist(), reverse=True)[:8]
    assert ignored[0, :32, 2].tolist() == sorted(side[:, 0].tolist(), reverse=True)[8:]
    assert not ignored[0, 32:].any()
