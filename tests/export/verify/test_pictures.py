"""Drawn pictures: something to find for a face detector, and shapes for any canvas."""

import torch

from lensbox.export.verify.pictures import SIZES, draw_faces, draw_scene
from lensbox.model import load_detector
from lensbox.ops.canvas import fit_to_canvases


def test_the_shipped_detector_finds_drawn_faces() -> None:
    detector, pictures = load_detector(), [draw_faces(seed) for seed in range(6)]
    assert [picture.shape[1:] for picture in pictures[:2]] == list(SIZES)
    canvases, _ = fit_to_canvases(pictures, None, *detector.specification.as_tuple)
    assert detector.detect(canvases, 0.3, 0.5)["counts"].min() >= 1


def test_scenes_have_the_canvas_s_shape_or_are_flatter() -> None:
    assert [draw_scene(seed, 48, 192).shape for seed in (0, 1)] == [(3, 18, 96), (3, 24, 96)]
    assert torch.equal(draw_scene(3, 64, 64), draw_scene(3, 64, 64))
