"""letterbox: Pillow to the byte, whatever the size, the canvas and the memory.

What it owes as every op does is in test_every_op.py.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from letterbox_cases import (
    LAYOUTS,
    PILLOW_VERSION,
    Case,
    colours_of_rgba,
    interleaved,
    pillow_letterbox,
    random_cases,
    random_image,
)
from torch import Tensor

from lensbox.ops import letterbox
from lensbox.runtime.torchscript import quiet_torchscript

GROUPS = range(12)  # of 40 random cases each

# Sizes that random ones seldom meet. (components, height, width, canvas height, canvas width)
CORNERS = [
    Case(1, 1, 1, 1, 1),
    Case(3, 1, 1, 256, 256),
    Case(4, 1, 1, 1, 300),
    Case(1, 256, 256, 256, 256),  # nothing to resample
    Case(3, 255, 257, 256, 256),
    Case(1, 16, 16, 16, 16, channels=3),
    Case(3, 32, 512, 32, 64),  # the size of a block of rows
    Case(3, 33, 513, 33, 65),
    Case(1, 1, 9000, 9, 256),
    Case(3, 9000, 1, 256, 9),
    Case(3, 2, 20000, 256, 20),  # 1:1000
    Case(4, 20000, 3, 20, 256, channels=3),
    Case(1, 3000, 3000, 3, 3),
    Case(3, 1100, 1100, 1, 1),
    Case(3, 1, 70000, 1, 1),
    Case(1, 70000, 1, 1, 1),
    Case(1, 3, 2, 700, 901),  # enlarged
    Case(3, 5, 7, 333, 1025, channels=3, fill=255),
    Case(4, 40, 1300, 1024, 2048),
    Case(3, 480, 640, 256, 256),
    Case(3, 1080, 1920, 256, 256),
    Case(3, 1920, 1080, 256, 256, channels=3, fill=114),
    Case(3, 2400, 1080, 256, 256),  # rows first
    Case(4, 2400, 1080, 256, 256, channels=3),
    Case(1, 2400, 1080, 256, 256),
]
of_every_corner = pytest.mark.parametrize(
    "case", CORNERS, ids=lambda c: f"{c.components}x{c.height}x{c.width}to{c.canvas_height}x{c.canvas_width}"
)


def assert_like_pillow(case: Case, image: Tensor, device: torch.device) -> None:
    canvases = letterbox([image.to(device)], *case.canvas).canvases
    assert canvases.dtype == torch.uint8
    assert canvases.is_contiguous()
    assert canvases.device.type == device.type
    expected = pillow_letterbox(image, *case.canvas)
    assert torch.equal(canvases[0].cpu(), expected), case


@of_every_corner
def test_corners_are_like_pillow(device: torch.device, case: Case) -> None:
    image = case.image()
    assert_like_pillow(case, image, device)
    assert_like_pillow(case, interleaved(image), device)


@pytest.mark.parametrize("group", GROUPS)
def test_sizes_are_like_pillow(device: torch.device, group: int) -> None:
    for case in random_cases(40, seed=group):
        assert_like_pillow(case, case.image(), device)
        assert_like_pillow(case, interleaved(case.image()), device)


@pytest.mark.skipif(PILLOW_VERSION < (13, 0), reason="earlier ones always combine columns first")
@pytest.mark.parametrize("group", GROUPS)
def test_the_order_is_that_of_pillow_13(group: int) -> None:
    for case in random_cases(40, seed=100 + group):
        image = case.image()
        expected = pillow_letterbox(image, *case.canvas, at_once=True)
        assert torch.equal(letterbox([image], *case.canvas).canvases[0], expected), case


@pytest.mark.parametrize("value", [0, 1, 127, 254, 255])
def test_an_even_image_stays_even(device: torch.device, value: int) -> None:
    for case in random_cases(40, seed=200 + value):
        image = torch.full((case.components, case.height, case.width), value, dtype=torch.uint8)
        canvas = letterbox([image.to(device)], case.canvas_height, case.canvas_width, case.channels, value)[0]
        assert (canvas == value).all(), case


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


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
@pytest.mark.parametrize("components", [1, 3, 4])
@pytest.mark.parametrize("channels", [1, 3])
def test_any_strides(
    device: torch.device, layout: Callable[[Tensor], Tensor], components: int, channels: int
) -> None:
    sizes = [(1, 1), (1, 90), (90, 1), (3, 2), (37, 70), (150, 67), (64, 64), (260, 31), (35, 900)]
    for height, width in sizes:
        image = layout(random_image(components, height, width).to(device))
        canvas = (33, 47, channels, 9)
        expected = pillow_letterbox(image.cpu().contiguous(), *canvas)
        assert torch.equal(letterbox([image], *canvas).canvases[0].cpu(), expected), (height, width)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_a_batch_do_not_mix(device: torch.device, channels: int) -> None:
    cases = list(random_cases(60, seed=7))
    images = [layout(case.image()) for case, layout in zip(cases, LAYOUTS * 5, strict=True)]
    batch = letterbox([image.to(device) for image in images], 50, 70, channels, 3)
    assert batch.canvases.shape == (60, channels, 50, 70)
    assert batch.geometry.shape == (60, 6)
    for index, image in enumerate(images):
        alone = letterbox([image.to(device)], 50, 70, channels, 3)
        assert torch.equal(batch.canvases[index], alone.canvases[0])
        assert torch.equal(batch.geometry[index], alone.geometry[0])
        expected = pillow_letterbox(image, 50, 70, channels, 3)
        assert torch.equal(batch.canvases[index].cpu(), expected)


def test_inputs_are_not_changed(device: torch.device) -> None:
    images = [case.image().to(device) for case in random_cases(20, seed=8)]
    copies = [image.clone() for image in images]
    first, second = letterbox(images, 40, 40), letterbox(images, 40, 40)
    assert all(torch.equal(image, copy) for image, copy in zip(images, copies, strict=True))
    assert torch.equal(first.canvases, second.canvases)


@pytest.mark.parametrize(
    ("size", "canvas", "geometry"),
    [
        ((256, 256), (256, 256), (1, 1, 0, 0, 256, 256)),
        ((512, 256), (256, 256), (0.5, 0.5, 64, 0, 256, 512)),
        ((100, 200), (256, 256), (1.28, 1.28, 0, 64, 200, 100)),
        ((1, 1), (256, 256), (256, 256, 0, 0, 1, 1)),
        # 3 / 2 canvas pixels round up to 2, so the scales differ; of 254 rows of padding, half lie above.
        ((3, 512), (256, 256), (0.5, 2 / 3, 0, 127, 512, 3)),
        # 1000 / 7 * 3 = 428.6 columns in 450 are 429; of 21 columns of padding the odd one is on the right.
        ((7, 1000), (3, 450), (0.429, 3 / 7, 10, 0, 1000, 7)),
        # 256 / 5000 canvas pixels: the side keeps one.
        ((1, 5000), (256, 256), (256 / 5000, 1, 0, 127, 5000, 1)),
        ((40000, 2), (256, 256), (0.5, 256 / 40000, 127, 0, 2, 40000)),
        ((1080, 1920), (384, 640), (1 / 3, 1 / 3, 0, 12, 1920, 1080)),
        ((50, 50), (20, 31), (0.4, 0.4, 5, 0, 50, 50)),
    ],
)
def test_hand_worked_geometry(
    device: torch.device, size: tuple[int, int], canvas: tuple[int, int], geometry: tuple[float, ...]
) -> None:
    image = torch.full((1, *size), 200, dtype=torch.uint8, device=device)
    canvases, actual = letterbox([image], *canvas, fill=3)
    assert actual.dtype == torch.float32
    assert actual.tolist() == torch.tensor([geometry], dtype=torch.float32).tolist()
    scale_x, scale_y, left, top = geometry[:4]
    right, bottom = round(left + size[1] * scale_x), round(top + size[0] * scale_y)
    inside = torch.zeros(canvas, dtype=torch.bool, device=device)
    inside[int(top) : bottom, int(left) : right] = True
    assert (canvases[0, 0][inside] == 200).all()
    assert (canvases[0, 0][~inside] == 3).all()


def test_strips_of_the_longest_side(device: torch.device) -> None:
    # The longest side that there may be: the windows of a small canvas are then half a million pixels long.
    strip = torch.full((1, 1, 1 << 24), 100, dtype=torch.uint8, device=device)
    across, down = letterbox([strip], 64, 64), letterbox([strip.mT], 64, 64)
    assert (across.canvases[0, 0, 31] == 100).all()
    assert (down.canvases[0, 0, :, 31] == 100).all()
    assert across.geometry[0, 4].item() == down.geometry[0, 5].item() == 1 << 24


def gray(height: int = 4, width: int = 5) -> Tensor:
    return torch.zeros(1, height, width, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([gray(), gray().float()], 8, 8), TypeError, r"images\[1\] must be uint8, got Float"),
        (
            ([gray(), gray()[0]], 8, 8),
            ValueError,
            r"images\[1\] must have the shape \[C, H, W\].*got \[4, 5\]",
        ),
        (
            ([torch.zeros(2, 4, 5, dtype=torch.uint8)], 8, 8),
            ValueError,
            r"images\[0\] must have the shape \[C, H, W\] with C = 1, 3 or 4, got \[2, 4, 5\]",
        ),
        (([gray(0, 5)], 8, 8), ValueError, r"images\[0\] must have at least one row.*got \[1, 0, 5\]"),
        (([gray(5, 0)], 8, 8), ValueError, r"images\[0\] must have .* one column, got \[1, 5, 0\]"),
        (
            ([gray(), gray(1, 1).expand(1, 1, (1 << 24) + 1)], 8, 8),
            ValueError,
            r"images\[1\] must have sides of at most 16777216 pixels, got \[1, 1, 16777217\]",
        ),
        (([gray()], 0, 8), ValueError, "height must be between 1 and 16384, got 0"),
        (([gray()], 16385, 8), ValueError, "height must be between 1 and 16384, got 16385"),
        (([gray()], 8, -1), ValueError, "width must be between 1 and 16384, got -1"),
        (([gray()], 8, 1 << 40), ValueError, "width must be between 1 and 16384, got 1099511627776"),
        (([gray()], 8, 8, 2), ValueError, "channels must be 1 or 3, got 2"),
        (([gray()], 8, 8, 1, 256), ValueError, "fill must be between 0 and 255, got 256"),
        (([gray()], 8, 8, 1, -1), ValueError, "fill must be between 0 and 255, got -1"),
        (([], 8, 8), ValueError, "images must hold at least one image, got none"),
    ],
)
def test_errors_name_argument_rule_and_value(
    arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"lensbox::letterbox: {message}"):
        letterbox(*arguments)


def test_no_images_in_torchscript() -> None:
    source = "def call(images: List[Tensor]):\n    return torch.ops.lensbox.letterbox(images, 8, 8)\n"
    with quiet_torchscript():
        scripted = torch.jit.CompilationUnit(source).call
    with pytest.raises(Exception, match="lensbox::letterbox: images must hold at least one image, got none"):
        scripted([])


def test_the_largest_canvas() -> None:
    canvases = letterbox([gray(1, 2)], 1, 16384, fill=5).canvases
    assert canvases.shape == (1, 1, 1, 16384)
    assert (canvases[0, 0, 0, 8191:8193] == 0).all()
    assert (canvases == 5).sum() == 16382


GPU_CANVASES = [(256, 256), (1024, 2048), (1, 1), (3, 500), (640, 640), (17, 33), (2000, 9)]


@pytest.mark.gpu
@pytest.mark.parametrize("canvas", GPU_CANVASES, ids=str)
@pytest.mark.parametrize("channels", [1, 3])
def test_cuda_gives_the_bytes_of_the_cpu(canvas: tuple[int, int], channels: int) -> None:
    cases = [*random_cases(80, seed=11), *CORNERS]
    layouts = (LAYOUTS * 10)[: len(cases)]
    images = [layout(case.image()) for case, layout in zip(cases, layouts, strict=True)]
    images += [interleaved(case.image()) for case in CORNERS]
    # A copy to the device keeps the strides, but for those of expanded images.
    ours = letterbox([image.cuda() for image in images], *canvas, channels, 77)
    theirs = letterbox(images, *canvas, channels, 77)
    assert torch.equal(ours.geometry.cpu(), theirs.geometry)
    for index, image in enumerate(images):
        assert torch.equal(ours.canvases[index].cpu(), theirs.canvases[index]), (index, image.shape)


@pytest.mark.gpu
def test_more_images_than_a_launch_holds() -> None:
    cases = [case for seed in range(20, 38) for case in random_cases(40, seed)]
    images = [interleaved(case.image()) for case in cases]
    assert len(images) > 700
    on_device = [image.cuda() for image in images]
    for canvas in ((64, 64, 1, 0), (20, 31, 3, 9)):
        ours, theirs = letterbox(on_device, *canvas), letterbox(images, *canvas)
        assert torch.equal(ours.canvases.cpu(), theirs.canvases)
        assert torch.equal(ours.geometry.cpu(), theirs.geometry)


@pytest.mark.gpu
def test_a_captured_batch_of_many_images() -> None:
    # Sizes and addresses are those of the capture, pixels those of the replay.
    images = [interleaved(case.image()).cuda() for seed in range(20, 38) for case in random_cases(40, seed)]
    letterbox(images, 64, 64)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        captured = letterbox(images, 64, 64)
    for _ in range(2):
        for image in images:
            image.random_(0, 256)
        graph.replay()
        assert torch.equal(captured.canvases.cpu(), letterbox([image.cpu() for image in images], 64, 64)[0])
