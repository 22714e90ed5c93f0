"""fit, resize and letterbox: Pillow and OpenCV to the byte, for all sizes, fits, filters and memory layouts.

`test_letterbox.py` has the edges of the CUDA kernel, `test_every_op.py` the rules of all ops.
"""

import itertools
import math
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from letterbox_cases import (
    CORNERS,
    LAYOUTS,
    Case,
    colours_of_rgba,
    expected_fit,
    interleaved,
    pillow_letterbox,
    random_cases,
    random_image,
    sizes_of,
)

from lensbox.ops import fit, letterbox, resize

FITS: list[Any] = ["letterbox", "stretch", "crop", "ultralytics", "ultralytics_shrink"]
PILLOWS_FILTERS: list[Any] = ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
FILTERS: list[Any] = [*PILLOWS_FILTERS, "opencv_linear"]
ORDERS: list[Any] = ["gray", "rgb", "bgr"]

every_fit = pytest.mark.parametrize("fit_name", FITS)
every_filter = pytest.mark.parametrize("filter_name", FILTERS)


def assert_as_expected(
    device: torch.device, sizes: tuple[int, int, int, int], fit_name: Any, filter_name: Any, orders: list[Any]
) -> None:
    height, width, rows, columns = sizes
    image = random_image(3, height, width)
    on_device = interleaved(image).to(device)
    for order in orders:
        ours = fit([on_device], rows, columns, fit_name, filter_name, order, 9).canvases[0]
        expected = expected_fit(image, rows, columns, fit_name, filter_name, order, 9)
        assert torch.equal(ours.cpu(), expected), (sizes, order)


def assert_letterboxed(device: torch.device, case: Case) -> None:
    image = case.image()
    for memory in (image, interleaved(image)):
        canvases = letterbox([memory.to(device)], *case.canvas).canvases
        assert canvases.is_contiguous()
        assert torch.equal(canvases[0].cpu(), pillow_letterbox(image, *case.canvas)), case


@pytest.mark.parametrize("case", CORNERS, ids=str)
def test_corners_are_like_pillow(device: torch.device, case: Case) -> None:
    assert_letterboxed(device, case)


@pytest.mark.parametrize(
    "group", [0, *(pytest.param(more, marks=pytest.mark.exhaustive) for more in range(1, 6))]
)
def test_sizes_are_like_pillow(device: torch.device, group: int) -> None:
    for case in random_cases(40, seed=group):
        assert_letterboxed(device, case)


def test_gray_levels_of_all_colours(device: torch.device) -> None:
    # Every 3rd level of red and green and every level of blue, one pixel to one pixel.
    levels = torch.arange(0, 256, 3, dtype=torch.uint8)
    image = torch.cartesian_prod(levels, levels, torch.arange(256, dtype=torch.uint8)).T.reshape(
        3, 86 * 2, -1
    )
    height, width = image.shape[1:]
    for memory in (image.contiguous(), interleaved(image), colours_of_rgba(image)):
        canvas = letterbox([memory.to(device)], height, width).canvases[0]
        assert torch.equal(canvas.cpu(), pillow_letterbox(image, height, width))


@every_fit
@every_filter
def test_fits_and_filters(device: torch.device, fit_name: Any, filter_name: Any) -> None:
    for sizes in [*sizes_of(20, 300, seed=1), (64, 64, 64, 64), (90, 64, 45, 64), (30, 90, 30, 45)]:
        assert_as_expected(device, sizes, fit_name, filter_name, ORDERS)


@pytest.mark.exhaustive
@every_fit
@every_filter
def test_400_sizes_up_to_5000(device: torch.device, fit_name: Any, filter_name: Any) -> None:
    for sizes in sizes_of(400, 5000, seed=2):
        assert_as_expected(device, sizes, fit_name, filter_name, ["gray", "rgb"])


@pytest.mark.skipif(int(PIL.__version__.split(".")[0]) < 13, reason="combines columns first, always")
@pytest.mark.parametrize("filter_name", PILLOWS_FILTERS)
def test_one_call_of_pillow_13(filter_name: Any) -> None:
    for height, width, rows, columns in sizes_of(30, 300, seed=3):
        image = random_image(1, height, width)
        picture = PIL.Image.fromarray(image[0].numpy())
        expected = picture.resize((columns, rows), PIL.Image.Resampling[filter_name.upper()])
        found = resize([image], rows, columns, filter_name)[0, 0]
        assert np.array_equal(found, np.asarray(expected))


@every_fit
@every_filter
def test_any_layout_beside_others(device: torch.device, fit_name: Any, filter_name: Any) -> None:
    sizes = [(1, 1), (37, 70), (150, 67), (64, 64), (260, 31), (35, 700), (1, 90), (90, 1), (3, 2)]
    for components, order in itertools.product((1, 3, 4), ORDERS):
        images = [
            layout(random_image(components, *size).to(device))
            for layout, size in zip(LAYOUTS.values(), itertools.cycle(sizes), strict=False)
        ]
        found = fit(images, 33, 47, fit_name, filter_name, order)
        for canvas, geometry, image in zip(*found, images, strict=True):
            expected = expected_fit(image.cpu(), 33, 47, fit_name, filter_name, order)
            assert torch.equal(canvas.cpu(), expected), (image.shape, image.stride(), order)
            assert torch.equal(geometry, fit([image], 33, 47, fit_name).geometry[0])


@pytest.mark.parametrize(
    ("size", "canvas", "fit_name", "geometry"),
    [
        ((256, 256), (256, 256), "letterbox", (1, 1, 0, 0, 256, 256)),
        ((512, 256), (256, 256), "letterbox", (0.5, 0.5, 64, 0, 256, 512)),
        ((1, 1), (256, 256), "letterbox", (256, 256, 0, 0, 1, 1)),
        # 3 / 2 canvas pixels round up to 2, so the scales differ; of 254 rows of padding, half lie above.
        ((3, 512), (256, 256), "letterbox", (0.5, 2 / 3, 0, 127, 512, 3)),
        # 1000 / 7 * 3 = 428.6 columns in 450 are 429; of 21 columns of padding the odd one is on the right.
        ((7, 1000), (3, 450), "letterbox", (0.429, 3 / 7, 10, 0, 1000, 7)),
        # 256 / 5000 canvas pixels: the side keeps one.
        ((1, 5000), (256, 256), "letterbox", (256 / 5000, 1, 0, 127, 5000, 1)),
        ((40000, 2), (256, 256), "letterbox", (0.5, 256 / 40000, 127, 0, 2, 40000)),
        ((1080, 1920), (384, 640), "letterbox", (1 / 3, 1 / 3, 0, 12, 1920, 1080)),
        ((100, 200), (50, 40), "stretch", (0.2, 0.5, 0, 0, 200, 100)),
        # 100 columns of 50 rows; 60 are cut off, 30 on the left.
        ((100, 200), (50, 40), "crop", (0.5, 0.5, -30, 0, 200, 100)),
        # 200 / 7 * 50 = 357.1 columns become 357; 317 are cut off, 158.5 is rounded to the even 158.
        ((28, 200), (50, 40), "crop", (357 / 200, 50 / 28, -158, 0, 200, 28)),
        ((200, 80), (50, 40), "crop", (0.5, 0.5, 0, -25, 80, 200)),
        # 333 * 1.28 = 426.2 columns become 426.
        ((500, 333), (640, 640), "ultralytics", (426 / 333, 1.28, 107, 0, 333, 500)),
        # 2.5 columns become 2, where a letterbox makes 3.
        ((16, 5), (8, 8), "ultralytics", (0.4, 0.5, 3, 0, 5, 16)),
        ((16, 5), (8, 8), "letterbox", (0.6, 0.5, 2, 0, 5, 16)),
        ((31, 20), (64, 64), "ultralytics_shrink", (1, 1, 22, 16, 20, 31)),
        ((100, 200), (50, 40), "ultralytics_shrink", (0.2, 0.2, 0, 15, 200, 100)),
    ],
)
def test_hand_worked_geometry(
    device: torch.device,
    size: tuple[int, int],
    canvas: tuple[int, int],
    fit_name: Any,
    geometry: tuple[float, ...],
) -> None:
    image = torch.full((1, *size), 200, dtype=torch.uint8, device=device)
    canvases, actual = fit([image], *canvas, fit_name, order="gray", fill=3)
    assert actual.dtype == torch.float32
    assert actual.tolist() == torch.tensor([geometry]).tolist()
    scale_x, scale_y, left, top = geometry[:4]
    inside = torch.zeros(canvas, dtype=torch.bool, device=device)
    bottom, right = round(top + size[0] * scale_y), round(left + size[1] * scale_x)
    inside[max(int(top), 0) : bottom, max(int(left), 0) : right] = True
    assert torch.equal(canvases[0, 0], torch.where(inside, 200, 3))


def test_strips_of_the_longest_side(device: torch.device) -> None:
    # The longest side that there may be: the windows of a small canvas are then half a million pixels long.
    strip = torch.full((1, 1, 1 << 24), 100, dtype=torch.uint8, device=device)
    across, down = letterbox([strip], 64, 64), letterbox([strip.mT], 64, 64)
    assert (across.canvases[0, 0, 31] == 100).all()
    assert (down.canvases[0, 0, :, 31] == 100).all()
    assert across.geometry[0, 4].item() == down.geometry[0, 5].item() == 1 << 24


def test_the_largest_canvas() -> None:
    canvases = letterbox([torch.zeros(1, 1, 2, dtype=torch.uint8)], 1, 16384, fill=5).canvases
    assert canvases.shape == (1, 1, 1, 16384)
    assert (canvases[0, 0, 0, 8191:8193] == 0).all()
    assert (canvases == 5).sum() == 16382


def test_the_weights_of_a_wide_window_stay_exact(device: torch.device) -> None:
    # White stays white, whatever the weights: their sum is 1 up to 2^-22 for each pixel of the window.
    for filter_name in FILTERS:
        for image in (torch.full((1, 3, 3000), 255, dtype=torch.uint8), torch.zeros(1, 3000, 3).byte()):
            found = resize([image.to(device)], 2, 2, filter_name)
            assert (found.cpu() == image[0, 0, 0]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("order", "numbers"), [("gray", 1), ("bgr", 3)])
@pytest.mark.parametrize("width", [16, 17])
def test_numbers_are_computed_in_float32(
    device: torch.device, dtype: torch.dtype, order: Any, numbers: int, width: int
) -> None:
    image = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16).expand(3, -1, -1).contiguous()
    mean, std = [0.485, 0.456, 0.406][:numbers], [0.229, 0.224, 0.225][:numbers]
    images = [image.to(device), image.flip(0, 1).to(device)]
    levels = fit(images, 16, width, order=order, fill=3).canvases.cpu()
    found = fit(images, 16, width, order=order, fill=3, mean=mean, std=std, dtype=dtype).canvases
    shape = (numbers, 1, 1)
    expected = (levels.float() / 255 - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape)
    assert found.dtype == dtype
    assert torch.equal(found.cpu(), expected.to(dtype))
    without = fit(images, 16, width, order=order, fill=3, dtype=dtype).canvases
    assert torch.equal(without.cpu(), (levels.float() / 255).to(dtype))


def test_a_mean_alone_gives_float32(device: torch.device) -> None:
    image = torch.zeros(3, 2, 2, dtype=torch.uint8, device=device)
    found = fit([image], 2, 2, mean=[0.0, 0.5, 1.0]).canvases
    assert found.dtype == torch.float32
    assert found[0, :, 0, 0].tolist() == [0.0, -0.5, -1.0]


def gray(height: int = 2, width: int = 2) -> torch.Tensor:
    return torch.zeros(1, height, width, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"images": []}, ValueError, "images must hold at least one image, got none"),
        ({"images": [gray(), gray().float()]}, TypeError, r"images\[1\] must be uint8, got Float"),
        (
            {"images": [torch.zeros(2, 4, 5, dtype=torch.uint8)]},
            ValueError,
            r"images\[0\] must have the shape \[C, H, W\] with C = 1, 3 or 4, got \[2, 4, 5\]",
        ),
        ({"images": [gray(0, 5)]}, ValueError, r"images\[0\] must have at least one row.*got \[1, 0, 5\]"),
        (
            {"images": [gray(), gray(1, 1).expand(1, 1, (1 << 24) + 1)]},
            ValueError,
            r"images\[1\] must have sides of at most 16777216 pixels, got \[1, 1, 16777217\]",
        ),
        ({"width": 1 << 40}, ValueError, "width must be between 1 and 16384, got 1099511627776"),
        ({"fill": 256}, ValueError, "fill must be between 0 and 255, got 256"),
        (
            {"fit": "pad"},
            ValueError,
            "fit must be one of letterbox, stretch, crop, ultralytics, ultralytics_shrink, got pad",
        ),
        ({"filter": "cubic"}, ValueError, "filter must be one of nearest.*, got cubic"),
        ({"order": "RGB"}, ValueError, "order must be one of gray, rgb, bgr, got RGB"),
        ({"mean": [0.5]}, ValueError, r"mean must hold 3 numbers, one for each channel, got \[0.5\]"),
        ({"mean": [0.5, math.nan, 0.5]}, ValueError, r"mean must be finite in float32, got .*nan"),
        ({"std": [1.0, 0.0, 1.0]}, ValueError, "std must be above 0, got 0"),
        ({"dtype": torch.float64}, TypeError, "dtype must be uint8, float32, .*, got Double"),
        ({"mean": [0, 0, 0], "dtype": torch.uint8}, ValueError, "dtype must be floating-point"),
    ],
)
def test_errors_name_argument_rule_and_value(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    good: dict[str, Any] = {"images": [gray()], "height": 8, "width": 8}
    with pytest.raises(error, match=f"lensbox::fit: {message}"):
        fit(**(good | change))
    with pytest.raises(ValueError, match="lensbox::fit: channels must be 1 or 3, got 2"):
        letterbox([gray()], 8, 8, 2)


def test_refuses_a_crop_of_too_many_columns(device: torch.device) -> None:
    strip = gray(1, 1).to(device).expand(1, 1, 1 << 20)
    with pytest.raises(ValueError, match="at most 16777216 pixels, got 17825792 x 17"):
        fit([strip], 17, 17, "crop")
