"""fit and resize: Pillow to the byte with every fit, filter and order; numbers of other dtypes.

`test_letterbox.py` has the layouts of memory and the edges of the kernels, `test_every_op.py` the rules of
all ops.
"""

import itertools
import math
from typing import Any

import pytest
import torch
from letterbox_cases import LAYOUTS, PILLOW_VERSION, interleaved, pillow_fit, random_image, sizes_of

from lensbox.ops import fit, resize

FITS: list[Any] = ["letterbox", "stretch", "crop"]
FILTERS: list[Any] = ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
ORDERS: list[Any] = ["gray", "rgb", "bgr"]

every_fit = pytest.mark.parametrize("fit_name", FITS)
every_filter = pytest.mark.parametrize("filter_name", FILTERS)


def assert_like_pillow(
    device: torch.device, sizes: tuple[int, int, int, int], fit_name: Any, filter_name: Any, orders: list[Any]
) -> None:
    height, width, rows, columns = sizes
    image = random_image(3, height, width)
    on_device = interleaved(image).to(device)
    for order in orders:
        ours = fit([on_device], rows, columns, fit_name, filter_name, order, 9).canvases[0]
        expected = pillow_fit(image, rows, columns, fit_name, filter_name, order, 9)
        assert torch.equal(ours.cpu(), expected), (sizes, order)


@every_fit
@every_filter
def test_like_pillow(device: torch.device, fit_name: Any, filter_name: Any) -> None:
    for sizes in [*sizes_of(20, 300, seed=1), (64, 64, 64, 64), (90, 64, 45, 64), (30, 90, 30, 45)]:
        assert_like_pillow(device, sizes, fit_name, filter_name, ORDERS)


@pytest.mark.exhaustive
@every_fit
@every_filter
def test_400_sizes_up_to_5000_are_like_pillow(device: torch.device, fit_name: Any, filter_name: Any) -> None:
    for sizes in sizes_of(400, 5000, seed=2):
        assert_like_pillow(device, sizes, fit_name, filter_name, ["gray", "rgb"])


@pytest.mark.skipif(PILLOW_VERSION < (13, 0), reason="earlier Pillows always combine columns first")
@every_filter
def test_one_call_of_pillow_13(filter_name: Any) -> None:
    for height, width, rows, columns in sizes_of(30, 300, seed=3):
        image = random_image(3, height, width)
        expected = pillow_fit(image, rows, columns, "stretch", filter_name, at_once=True)
        assert torch.equal(resize([image], rows, columns, filter_name)[0], expected)


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
            expected = pillow_fit(image.cpu(), 33, 47, fit_name, filter_name, order)
            assert torch.equal(canvas.cpu(), expected), (image.shape, image.stride(), order)
            assert torch.equal(geometry, fit([image], 33, 47, fit_name).geometry[0])


@pytest.mark.parametrize(
    ("size", "fit_name", "geometry"),
    [
        ((100, 200), "stretch", (0.2, 0.5, 0, 0, 200, 100)),
        # 100 columns of 50 rows; 60 are cut off, 30 on the left.
        ((100, 200), "crop", (0.5, 0.5, -30, 0, 200, 100)),
        # 200 / 7 * 50 = 357.1 columns become 357; 317 are cut off, 158.5 is rounded to the even 158.
        ((28, 200), "crop", (357 / 200, 50 / 28, -158, 0, 200, 28)),
        ((200, 80), "crop", (0.5, 0.5, 0, -25, 80, 200)),
    ],
)
def test_hand_worked_geometry(
    device: torch.device, size: tuple[int, int], fit_name: Any, geometry: tuple[float, ...]
) -> None:
    image = torch.zeros(1, *size, dtype=torch.uint8, device=device)
    found = fit([image], 50, 40, fit_name).geometry
    assert found.tolist() == torch.tensor([geometry]).tolist()


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


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"fit": "pad"}, ValueError, "fit must be one of letterbox, stretch, crop, got pad"),
        ({"filter": "cubic"}, ValueError, "filter must be one of nearest.*, got cubic"),
        ({"order": "RGB"}, ValueError, "order must be one of gray, rgb, bgr, got RGB"),
        ({"mean": [0.5]}, ValueError, r"mean must hold 3 numbers, one for each channel, got \[0.5\]"),
        ({"mean": [0.5, math.nan, 0.5]}, ValueError, r"mean must be finite in float32, got .*nan"),
        ({"std": [1.0, 0.0, 1.0]}, ValueError, "std must be above 0, got 0"),
        ({"std": [1.0, 1e39, 1.0]}, ValueError, "std must be finite in float32"),
        (
            {"dtype": torch.float64},
            TypeError,
            "dtype must be uint8, float32, .*, got Double",
        ),
        ({"mean": [0, 0, 0], "dtype": torch.uint8}, ValueError, "dtype must be floating-point"),
        ({"fill": -1}, ValueError, "fill must be between 0 and 255, got -1"),
    ],
)
def test_errors_name_argument_rule_and_value(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"lensbox::fit: {message}"):
        fit([torch.zeros(1, 2, 2, dtype=torch.uint8)], 8, 8, **arguments)


def test_refuses_a_crop_of_too_many_columns(device: torch.device) -> None:
    strip = torch.zeros(1, 1, 1, dtype=torch.uint8, device=device).expand(1, 1, 1 << 20)
    with pytest.raises(ValueError, match="at most 16777216 pixels, got 17825792 x 17"):
        fit([strip], 17, 17, "crop")
