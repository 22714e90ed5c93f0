"""The CUDA kernel of fit gives the CPU's bytes at its edges: alignments, tiles, wide windows, launches."""

from collections.abc import Callable, Sequence

import pytest
import torch
from letterbox_cases import CORNERS, LAYOUTS, interleaved, random_cases, random_image
from torch import Tensor

from lensbox.ops import letterbox

pytestmark = pytest.mark.gpu

GPU_CANVASES = [(256, 256), (1024, 2048), (1, 1), (3, 500), (640, 640), (17, 33), (2000, 9)]


def assert_like_cpu(images: Sequence[Tensor], height: int, width: int, channels: int = 1) -> None:
    """Compares images on the device, views as they are, with the same on the CPU."""
    ours = letterbox(images, height, width, channels, 200)
    theirs = letterbox([image.cpu() for image in images], height, width, channels, 200)
    assert torch.equal(ours.geometry.cpu(), theirs.geometry)
    for index, image in enumerate(images):
        assert torch.equal(ours.canvases[index].cpu(), theirs.canvases[index]), (index, image.shape)


@pytest.mark.parametrize("canvas", GPU_CANVASES, ids=str)
@pytest.mark.parametrize("channels", [1, 3])
def test_cuda_gives_the_bytes_of_the_cpu(canvas: tuple[int, int], channels: int) -> None:
    cases = [*random_cases(80, seed=11), *CORNERS]
    layouts = ([*LAYOUTS.values()] * 10)[: len(cases)]
    images = [layout(case.image()) for case, layout in zip(cases, layouts, strict=True)]
    images += [interleaved(case.image()) for case in CORNERS]
    # A copy to the device keeps the strides, but for those of expanded images.
    assert_like_cpu([image.cuda() for image in images], *canvas, channels)


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


@four_layouts
@pytest.mark.parametrize("channels", [1, 3])
def test_canvases_around_the_width_of_a_tile(layout: Callable[[Tensor], Tensor], channels: int) -> None:
    for width in (15, 16, 17, 31, 33, 127, 128, 129, 255, 257, 400):
        images = [layout(random_image(3, *size).cuda()) for size in ((150, 700), (700, 310), (30, 40))]
        assert_like_cpu(images, width + 3, width, channels)
        assert_like_cpu(images[:1], width, width + 3, channels)


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


def test_a_batch_is_cut_by_what_it_holds() -> None:
    # The same image alone, beside few, beside many, and beside much larger ones: other tiles, the same bytes.
    image = interleaved(random_image(3, 333, 444).cuda())
    expected = letterbox([image.cpu()], 100, 130).canvases[0]
    small, large = random_image(1, 9, 9).cuda(), interleaved(random_image(3, 2100, 3100).cuda())
    for others in ([], [image] * 7, [small] * 90, [large] * 3, [small, large] * 20, [image] * 200):
        canvases = letterbox([*others, image, *others], 100, 130).canvases
        assert torch.equal(canvases[len(others)].cpu(), expected), len(others)


@pytest.mark.parametrize("count", [4, 5, 63, 64, 128, 129])
def test_as_many_images_as_parameters_hold(count: int) -> None:
    sizes = [(1 + 2 * (index % 2), 1 + 7 * index % 31, 1 + 11 * index % 37) for index in range(count)]
    assert_like_cpu([random_image(*size).cuda() for size in sizes], 12, 16)
