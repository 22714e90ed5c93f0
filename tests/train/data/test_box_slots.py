import pytest
import torch

from lensbox.train.data.image_store import fill_slots


def test_ignored_boxes_come_last() -> None:
    boxes = [torch.tensor([[1.0, 1, 2, 2], [3, 3, 4, 4], [5, 5, 6, 6]]), torch.zeros(0, 4), torch.ones(1, 4)]
    ignore = [torch.tensor([True, False, False]), torch.zeros(0).bool(), torch.tensor([True])]
    slots, counts, totals = fill_slots(boxes, ignore, 4)
    assert slots.shape == (3, 4, 4)
    assert slots[0].tolist() == [[3, 3, 4, 4], [5, 5, 6, 6], [1, 1, 2, 2], [0, 0, 0, 0]]
    assert slots[1].abs().sum() == 0
    assert slots[2, 0].tolist() == [1, 1, 1, 1]
    assert counts.tolist() == [2, 0, 0]
    assert totals.tolist() == [3, 0, 1]


def test_boxes_beyond_capacity_are_dropped() -> None:
    slots, counts, totals = fill_slots([torch.ones(5, 4)], [torch.tensor([True] * 4 + [False])], 2)
    assert slots.shape == (1, 2, 4)
    assert counts.tolist() == [1]
    assert totals.tolist() == [2]


def test_no_boxes_at_all() -> None:
    slots, counts, totals = fill_slots([torch.zeros(0, 4)] * 2, [torch.zeros(0).bool()] * 2, 3)
    assert slots.shape == (2, 3, 4)
    assert counts.tolist() == totals.tolist() == [0, 0]


def test_lists_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="got 1 and 0"):
        fill_slots([torch.zeros(0, 4)], [], 1)
