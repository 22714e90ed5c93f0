"""letterbox: Pillow to the byte, whatever the size, the canvas and the memory.

What it owes as every op does is in test_every_op.py.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from letterbox_cases import (
    LAYOUTS,
    Case,
    colours_of_rgba,
    interleaved,
    pillow_letterbox,
    random_cases,
    random_image,
)
from torch import Tensor

from lensbox.ops import letterbox

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


@pytest.mark.parametrize(
    "group", [0, 1, *(pytest.param(more, marks=pytest.mark.exhaustive) for more in range(2, 6))]
)
def test_sizes_are_like_pillow(device: torch.device, group: int) -> None:
    for case in random_cases(40, seed=group):
        image = case.image()
        assert_like_pillow(case, image, device)
        assert_like_pillow(case, interleaved(image), device)


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
        (([gray()], 8, 1 << 40), ValueError, "width must be between 1 and 16384, got 1099511627776"),
        (([gray()], 8, 8, 2), ValueError, "channels must be 1 or 3, got 2"),
        (([gray()], 8, 8, 1, 256), ValueError, "fill must be between 0 and 255, got 256"),
        (([], 8, 8), ValueError, "images must hold at least one image, got none"),
    ],
)
def test_errors_name_argument_rule_and_value(
    arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"lensbox::fit: {message}"):
        letterbox(*arguments)


def test_the_largest_canvas() -> None:
    canvases = letterbox([gray(1, 2)], 1, 16384, fill=5).canvases
    assert canvases.shape == (1, 1, 1, 16384)
    assert (canvases[0, 0, 0, 8191:8193] == 0).all()
    assert (canvases == 5).sum() == 16382


GPU_CANVASES = [(256, 256), (1024, 2048), (1, 1), (3, 500), (640, 640), (17, 33), (2000, 9)]


def assert_like_cpu(images: Sequence[Tensor], height: int, width: int, channels: int = 1) -> None:
    """Compares images on the device, views as they are, with the same on the CPU."""
    ours = letterbox(images, height, width, channels, 200)
    theirs = letterbox([image.cpu() for image in images], height, width, channels, 200)
    assert torch.equal(ours.geometry.cpu(), theirs.geometry)
    for index, image in enumerate(images):
        assert torch.equal(ours.canvases[index].cpu(), theirs.canvases[index]), (index, image.shape)


@pytest.mark.gpu
@pytest.mark.parametrize("canvas", GPU_CANVASES, ids=str)
@pytest.mark.parametrize("channels", [1, 3])
def test_cuda_gives_the_bytes_of_the_cpu(canvas: tuple[int, int], channels: int) -> None:
    cases = [*random_cases(80, seed=11), *CORNERS]
    layouts = ([*LAYOUTS.values()] * 10)[: len(cases)]
    images = [layout(case.image()) for case, layout in zip(cases, layouts, strict=True)]
    images += [interleaved(case.image()) for case in CORNERS]
    # A copy to the device keeps the strides, but for those of expanded images.
    assert_like_cpu([image.cuda() for image in images], *canvas, channels)


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


# --- CUDA where its kernel has edges: alignments, tiles, windows that fit no tile, launches ---


@pytest.mark.gpu
@pytest.mark.parametrize(("pixel", "components"), [(1, 1), (1, 3), (1, 4), (3, 3), (4, 3), (4, 4)])
@pytest.mark.parametrize("channels", [1, 3])
def test_lines_of_any_alignment_that_end_with_their_memory(
    pixel: int, components: int, channels: int
) -> None:
    # Every address modulo 16 for the first byte and for the last of the allocation. Pixels of one byte have
    # their channels in planes.
    images = []
    for begin in range(16):
        for width in (*range(1, 18), 45):
            planes = components if pixel == 1 else 1
            size = 5 * width * pixel * planes - (pixel - components if pixel > 1 else 0)
            memory = torch.randint(0, 256, (begin + size,), dtype=torch.uint8, device="cuda")
            strides = (5 * width, width, 1) if pixel == 1 else (1, width * pixel, pixel)
            images.append(memory.as_strided((components, 5, width), strides, begin))
    assert_like_cpu(images, 7, 11, channels)


four_layouts = pytest.mark.parametrize("layout", [*LAYOUTS.values()][:4], ids=[*LAYOUTS][:4])


@pytest.mark.gpu
@four_layouts
@pytest.mark.parametrize("channels", [1, 3])
def test_canvases_around_the_width_of_a_tile(layout: Callable[[Tensor], Tensor], channels: int) -> None:
    for width in (15, 16, 17, 31, 33, 127, 128, 129, 255, 257, 400):
        images = [layout(random_image(3, *size).cuda()) for size in ((150, 700), (700, 310), (30, 40))]
        assert_like_cpu(images, width + 3, width, channels)
        assert_like_cpu(images[:1], width, width + 3, channels)


@pytest.mark.gpu
@four_layouts
@pytest.mark.parametrize("size", [(3, 30_000), (30_000, 3), (1, 400_000), (2000, 1500)], ids=str)
@pytest.mark.parametrize("canvas", [(1, 1), (2, 3), (9, 9)], ids=str)
def test_windows_of_any_width(
    layout: Callable[[Tensor], Tensor], size: tuple[int, int], canvas: tuple[int, int]
) -> None:
    # Some fill shared memory with one window, some need more than there is.
    image = layout(random_image(3, *size).cuda())
    for channels in (1, 3):
        assert_like_cpu([image, layout(random_image(1, 20, 20).cuda()), image], *canvas, channels)


@pytest.mark.gpu
def test_a_batch_is_cut_by_what_it_holds() -> None:
    # The same image alone, beside few, beside many, and beside much larger ones: other tiles, the same bytes.
    image = interleaved(random_image(3, 333, 444).cuda())
    expected = letterbox([image.cpu()], 100, 130).canvases[0]
    small, large = random_image(1, 9, 9).cuda(), interleaved(random_image(3, 2100, 3100).cuda())
    for others in ([], [image] * 7, [small] * 90, [large] * 3, [small, large] * 20, [image] * 200):
        canvases = letterbox([*others, image, *others], 100, 130).canvases
        assert torch.equal(canvases[len(others)].cpu(), expected), len(others)


@pytest.mark.gpu
@pytest.mark.parametrize("count", [4, 5, 63, 64, 126, 127])
def test_as_many_images_as_parameters_hold(count: int) -> None:
    sizes = [(1 + 2 * (index % 2), 1 + 7 * index % 31, 1 + 11 * index % 37) for index in range(count)]
    assert_like_cpu([random_image(*size).cuda() for size in sizes], 12, 16)
