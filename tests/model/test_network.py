"""Anchors, and the decoding of predictions into boxes."""

import math

import torch

from lensbox.model.network import decode_boxes, make_anchors


def test_anchors_are_cell_centres_level_by_level_row_major() -> None:
    centers, strides = make_anchors(256, (4, 8, 16, 32))
    assert centers.shape == (5440, 2)
    assert centers[:2].tolist() == [[2, 2], [6, 2]]
    assert centers[64].tolist() == [2, 6]
    assert centers[4096].tolist() == [4, 4]
    assert centers[-1].tolist() == [240, 240]
    assert strides.unique_consecutive(return_counts=True)[1].tolist() == [4096, 1024, 256, 64]


def test_hand_worked_box() -> None:
    raw = torch.tensor([[[0.0, math.log(2.0), math.log(0.5), math.log(3.0)]]])
    boxes = decode_boxes(raw, torch.tensor([[20.0, 36.0]]), torch.tensor([8.0]))
    torch.testing.assert_close(boxes, torch.tensor([[[12.0, 20.0, 24.0, 60.0]]]))


def test_any_raw_distance_gives_a_finite_box_around_its_centre() -> None:
    raw = torch.tensor([-1e30, -100.0, 0.0, 100.0, 1e30]).repeat(4, 1).T[None]
    centers = torch.full((5, 2), 100.0)
    boxes = decode_boxes(raw, centers, torch.full((5,), 32.0))
    assert boxes.isfinite().all()
    assert (boxes[..., :2] <= centers).all()
    assert (boxes[..., 2:] >= centers).all()
