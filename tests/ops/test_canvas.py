"""Conversion between photographs and canvases, against worked values; test_images.py tests the pixels."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from lensbox.ops import letterbox
from lensbox.ops.canvas import (
    check_canvases,
    cut_into_batches,
    geometry_of_windows,
    place_boxes,
    place_points,
    restore_boxes,
    restore_points,
)
from lensbox.runtime.torchscript import quiet_torchscript


@pytest.mark.parametrize(
    ("count", "parts"),
    [(0, [2]), (1, [2]), (5, [4, 2]), (8, [8]), (15, [8, 4, 2, 2]), (16, [8, 8])],
)
def test_batches_are_cut_into_the_largest_sizes_and_filled(count: int, parts: list[int]) -> None:
    images = torch.ones(count, 1, 1, 1, dtype=torch.uint8)
    cut = cut_into_batches(images, [8, 4, 2])
    assert list(map(len, cut)) == parts
    assert torch.cat(cut).flatten().tolist() == [1] * count + [0] * (sum(parts) - count)


def geometry_of(height: int, width: int) -> Tensor:
    """Return the geometry of one image, float32 [1, 6]."""
    return letterbox([torch.zeros(1, height, width, dtype=torch.uint8)], 256, 256).geometry


@pytest.mark.parametrize(("height", "width"), [(480, 640), (640, 480), (31, 17), (3, 512), (1, 1)])
def test_restore_undoes_the_geometry(height: int, width: int) -> None:
    geometry = geometry_of(height, width)[0]
    original = torch.rand(7, 2, 2) * torch.tensor([width, height])
    boxes = original.flatten(1)
    placed = place_boxes(boxes, geometry)
    torch.testing.assert_close(placed, boxes * geometry[:2].repeat(2) + geometry[2:4].repeat(2))
    torch.testing.assert_close(restore_boxes(placed, geometry), boxes, rtol=1e-4, atol=1e-4)
    points = 3 * original - torch.tensor([width, height])  # not clipped
    placed = place_points(points[None], geometry[None])
    torch.testing.assert_close(placed[0], points * geometry[:2] + geometry[2:4])
    torch.testing.assert_close(restore_points(placed[0], geometry), points, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(restore_points(placed, geometry[None])[0], points, rtol=1e-4, atol=1e-3)


def test_restore_clips_to_the_image() -> None:
    geometry = geometry_of(100, 200)[0]
    boxes = torch.tensor([[[-10.0, 0.0, 300.0, 256.0], [0.0, 0.0, 0.0, 0.0]]])
    expected = torch.tensor([[[0.0, 0.0, 200.0, 100.0], [0.0, 0.0, 0.0, 0.0]]])
    assert torch.equal(restore_boxes(boxes, geometry), expected)
    assert restore_boxes(torch.zeros(0, 4), geometry).shape == (0, 4)


def test_a_batch_is_restored_image_by_image() -> None:
    geometry = torch.cat([geometry_of(100, 200), geometry_of(512, 256), geometry_of(7, 7)])
    boxes = torch.rand(3, 5, 4) * 256
    restored = restore_boxes(boxes, geometry)
    for image in range(3):
        assert torch.equal(restored[image], restore_boxes(boxes[image], geometry[image]))
        points = restore_points(boxes[image, :, :2], geometry[image])
        assert torch.equal(restore_points(boxes[..., :2], geometry)[image], points)
    assert torch.equal(restore_boxes(boxes[:, 0], geometry), restored[:, 0])
    assert restore_boxes(boxes[:0], geometry[:0]).shape == (0, 5, 4)


def test_whole_windows_change_nothing() -> None:
    sizes = [(100, 200), (300, 301), (4001, 3007), (7, 1999), (1, 1)]
    geometry = torch.cat([geometry_of(*size) for size in sizes])
    windows = torch.tensor([[0.0, 0, width, height, width, height] for height, width in sizes])
    assert torch.equal(geometry_of_windows(geometry, windows), geometry)


def test_hand_worked_windows() -> None:
    # An image of 128 x 64 fills the canvas at twice its size, with 64 rows of padding above. The first window
    # was decoded at a quarter and stands for 512 x 256 pixels of a photograph of 509 x 255. The second window
    # is a tile of another photograph. The third window mirrors the first, so the surplus lies on the left.
    geometry = geometry_of(64, 128).expand(3, -1)
    windows = torch.tensor(
        [[0.0, 0, 512, 256, 509, 255], [254, 0, 510, 128, 510, 128], [-3, 0, 509, 256, 509, 255]]
    )
    expected = torch.tensor(
        [[0.5, 0.5, 0, 64, 509, 255], [1, 1, -254, 64, 510, 128], [0.5, 0.5, 1.5, 64, 509, 255]]
    )
    actual = geometry_of_windows(geometry, windows)
    assert torch.equal(actual, expected)
    # The box of the whole image on the canvas becomes photograph coordinates, clipped to the photograph.
    boxes = torch.tensor([[0.0, 64, 256, 192]]).expand(3, 1, 4)
    restored = restore_boxes(boxes, actual)[:, 0]
    assert restored.tolist() == [[0, 0, 509, 255], [254, 0, 510, 128], [0, 0, 509, 255]]


@pytest.mark.parametrize(
    ("function", "first", "second", "message"),
    [
        (restore_boxes, (2, 5), (6,), r"boxes must have the shape \[\.\.\., 4\], got .*\[2, 5\]"),
        (restore_boxes, (2, 4), (4,), r"geometry must have the shape \[6\] or \[B, 6\], got .*\[4\]"),
        (restore_boxes, (2, 4), (3, 6), r"boxes must have .*\[B, \.\.\., 4\] .*\[3, 6\].*got .*\[2, 4\]"),
        (restore_points, (2, 4), (2, 6), r"points must have the shape \[\.\.\., 2\], got .*\[2, 4\]"),
        (restore_points, (3, 2), (2, 6), r"points must have the shape \[B, \.\.\., 2\] .*got .*\[3, 2\]"),
        (geometry_of_windows, (2, 6), (1, 6), r"windows must have the shape .*\[2, 6\].*, got .*\[1, 6\]"),
    ],
)
def test_rejects_bad_shapes(
    function: Callable[[Tensor, Tensor], Tensor],
    first: tuple[int, ...],
    second: tuple[int, ...],
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        function(torch.ones(first), torch.ones(second))


def test_windows_are_real_numbers() -> None:
    with pytest.raises(TypeError, match="windows must hold real numbers, got ComplexFloat"):
        geometry_of_windows(torch.ones(1, 6), torch.ones(1, 6, dtype=torch.complex64))


def test_checks_of_canvases_say_the_same_in_torchscript() -> None:
    with quiet_torchscript():
        scripted: Any = torch.jit.script(check_canvases)
    canvases = torch.zeros(2, 1, 4, 6, dtype=torch.uint8)
    for check in (check_canvases, scripted):
        check(canvases, [1, 4, 6], 0.0, 1.0)
        for images, iou, message in (
            (canvases.bfloat16(), 0.5, "images must be uint8, got bfloat16"),
            (canvases[:, :, 1:], 0.5, r"C, H, W = \[1, 4, 6\], got \[2, 1, 3, 6\]"),
            (canvases, float("nan"), "iou_threshold must be between 0 and 1, got nan"),
            (canvases, 1.5, "iou_threshold must be between 0 and 1, got 1.5"),
        ):
            with pytest.raises(Exception, match=message):
                check(images, [1, 4, 6], 0.5, iou)
