"""The way to the canvas and back, against hand-worked geometry and against Pillow."""

import numpy as np
import PIL.Image
import pytest
import torch
from torch import Tensor

from lensbox.model.letterbox import letterbox, restore_boxes
from lensbox.runtime.torchscript import quiet_torchscript


def random_image(channels: int, height: int, width: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (channels, height, width), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("height", "width", "geometry"),
    [
        (256, 256, (1, 1, 0, 0, 256, 256)),
        (512, 256, (0.5, 0.5, 64, 0, 256, 512)),
        (100, 200, (1.28, 1.28, 0, 64, 200, 100)),
        (1, 1, (256, 256, 0, 0, 1, 1)),
        # 3 / 2 canvas pixels round up to 2, so the scales differ: 256 / 512 and 2 / 3.
        (3, 512, (0.5, 2 / 3, 0, 127, 512, 3)),
        # 256 / 5000 canvas pixels: the side keeps one pixel.
        (1, 5000, (256 / 5000, 1, 0, 127, 5000, 1)),
        (40000, 2, (0.5, 256 / 40000, 127, 0, 2, 40000)),
    ],
)
def test_hand_worked_geometry(height: int, width: int, geometry: tuple[float, ...]) -> None:
    canvas, actual = letterbox(torch.full((1, height, width), 200, dtype=torch.uint8), 256)
    torch.testing.assert_close(actual, torch.tensor(geometry, dtype=torch.float32))
    scale_x, scale_y, left, top = geometry[:4]
    right, bottom = round(left + width * scale_x), round(top + height * scale_y)
    inside = torch.zeros(256, 256, dtype=torch.bool)
    inside[int(top) : bottom, int(left) : right] = True
    assert canvas.dtype == torch.uint8
    assert (canvas[0][inside] == 200).all()
    assert (canvas[0][~inside] == 0).all()


@pytest.mark.parametrize(("height", "width"), [(300, 417), (601, 130), (90, 37), (256, 255), (1203, 1999)])
def test_agrees_with_pillow(height: int, width: int) -> None:
    image = random_image(1, height, width)
    canvas, geometry = letterbox(image, 256)
    new_width, new_height = round(width * float(geometry[0])), round(height * float(geometry[1]))
    left, top = int(geometry[2]), int(geometry[3])
    resized = PIL.Image.fromarray(image[0].numpy()).resize(
        (new_width, new_height), PIL.Image.Resampling.BILINEAR
    )
    actual = canvas[0, top : top + new_height, left : left + new_width].numpy().astype(int)
    difference = np.abs(actual - np.asarray(resized).astype(int))
    # Pillow rounds once more, between its horizontal and its vertical pass.
    assert difference.max() <= 1


def test_luma_is_that_of_bt601() -> None:
    image = random_image(3, 256, 256)
    red, green, blue = image.double()
    expected = (0.299 * red + 0.587 * green + 0.114 * blue).round()
    canvas, _ = letterbox(image, 256)
    assert (canvas[0].double() - expected).abs().max() <= 1
    assert (canvas[0] != expected).double().mean() < 0.001  # ties of rounding only
    primaries = torch.eye(3, dtype=torch.uint8)[:, :, None].expand(3, 3, 3) * 255
    assert letterbox(primaries.contiguous(), 3)[0][0, :, 0].tolist() == [76, 150, 29]


def test_gray_rgb_and_rgba_of_the_same_picture_agree() -> None:
    gray = random_image(1, 200, 120)
    alpha = random_image(1, 200, 120, seed=1)
    expected, geometry = letterbox(gray, 256)
    for image in (gray.expand(3, -1, -1), torch.cat([gray.expand(3, -1, -1), alpha])):
        canvas, same_geometry = letterbox(image, 256)
        assert torch.equal(canvas, expected)
        assert torch.equal(same_geometry, geometry)


def test_reduction_averages_instead_of_skipping_pixels() -> None:
    checkerboard = ((torch.arange(2048)[:, None] + torch.arange(2048)) % 2 * 255).to(torch.uint8)
    canvas, _ = letterbox(checkerboard[None], 256)
    assert ((canvas == 127) | (canvas == 128)).all()


def test_very_long_image_keeps_positions() -> None:
    # 40,000 px takes the way over the averaging step; the bright part is one eighth, in the middle.
    image = torch.zeros(1, 1, 40000, dtype=torch.uint8)
    image[..., 17500:22500] = 255
    canvas, _ = letterbox(image, 256)
    row = canvas[0, 127]
    assert (row[113:143] == 255).all()
    assert (row[:111] == 0).all()
    assert (row[145:] == 0).all()


@pytest.mark.parametrize(("height", "width"), [(480, 640), (640, 480), (31, 17), (3, 512), (1, 1)])
def test_restore_undoes_the_geometry(height: int, width: int) -> None:
    _, geometry = letterbox(torch.zeros(1, height, width, dtype=torch.uint8), 256)
    scale, offset = geometry[:2].repeat(2), geometry[2:4].repeat(2)
    size = torch.tensor([width, height, width, height], dtype=torch.float32)
    original = torch.rand(7, 4, generator=torch.Generator().manual_seed(0)) * size
    torch.testing.assert_close(
        restore_boxes(original * scale + offset, geometry), original, rtol=1e-4, atol=1e-4
    )


def test_restore_clips_to_the_image() -> None:
    _, geometry = letterbox(torch.zeros(1, 100, 200, dtype=torch.uint8), 256)
    boxes = torch.tensor([[[-10.0, 0.0, 300.0, 256.0], [0.0, 0.0, 0.0, 0.0]]])
    expected = torch.tensor([[[0.0, 0.0, 200.0, 100.0], [0.0, 0.0, 0.0, 0.0]]])
    assert torch.equal(restore_boxes(boxes, geometry), expected)
    assert restore_boxes(torch.zeros(0, 4), geometry).shape == (0, 4)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (torch.zeros(3, 4, 4), "image must be uint8, got float32"),
        (torch.zeros(2, 4, 4, dtype=torch.uint8), r"with C = 1, 3 or 4, got .*\[2, 4, 4\]"),
        (torch.zeros(4, 4, dtype=torch.uint8), r"image must have the shape \[C, H, W\].*\[4, 4\]"),
        (torch.zeros(1, 0, 4, dtype=torch.uint8), r"at least one row and one column, got .*\[1, 0, 4\]"),
    ],
)
def test_bad_images_are_refused(image: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        letterbox(image, 256)


def test_bad_boxes_and_geometry_are_refused() -> None:
    with pytest.raises(ValueError, match=r"boxes must have the shape \[\.\.\., 4\], got .*\[2, 5\]"):
        restore_boxes(torch.zeros(2, 5), torch.ones(6))
    with pytest.raises(ValueError, match=r"geometry must have the shape \[6\], got .*\[4\]"):
        restore_boxes(torch.zeros(2, 4), torch.ones(4))


def test_scripted_letterbox_is_the_same() -> None:
    with quiet_torchscript():
        scripted = torch.jit.script(letterbox)
    for shape in ((1, 33, 70), (3, 70, 33), (4, 1, 17000), (3, 500, 400)):
        image = random_image(*shape)
        for actual, expected in zip(scripted(image, 256), letterbox(image, 256), strict=True):
            assert torch.equal(actual, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1, 256, 256), (3, 480, 640), (4, 31, 7), (3, 3000, 4000), (1, 1, 40000)])
def test_gpu_makes_the_same_canvas(shape: tuple[int, int, int]) -> None:
    image = random_image(*shape)
    expected, expected_geometry = letterbox(image, 256)
    canvas, geometry = letterbox(image.cuda(), 256)
    assert torch.equal(geometry.cpu(), expected_geometry)
    difference = (canvas.cpu().int() - expected.int()).abs()
    # A sum that ends on a half may be rounded either way.
    assert difference.max() <= 1
    assert difference.float().mean() < 0.01
