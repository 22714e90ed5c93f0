"""Many images and photographs in one call."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from picture_files import smooth_image
from torch import Tensor

from lensbox.runtime.artifact import Artifact
from lensbox.runtime.detection import Detections
from lensbox.runtime.images.photo import Photo
from lensbox.runtime.loading import load_artifact

LOW = 0.03


def assert_close(actual: Detections, expected: Detections, scale: float = 1.0, shift: float = 0.0) -> None:
    """Compare with a tolerance: a batch may use other kernels than one image."""
    assert actual.boxes.dtype == actual.scores.dtype == torch.float32
    assert actual.boxes.is_cpu
    assert actual.scores.is_cpu
    torch.testing.assert_close(actual.scores, expected.scores, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(actual.boxes, expected.boxes * scale + shift, rtol=1e-4, atol=1e-2)


@pytest.fixture(scope="module")
def images() -> list[Tensor]:
    """Return images of all sizes, numbers of channels and strides."""
    interleaved = smooth_image(3, 90, 310, 1).permute(1, 2, 0).contiguous().permute(2, 0, 1)
    part_of_another = smooth_image(4, 300, 300, 2)[:3, 10:210, 20:140]
    return [
        smooth_image(1, 256, 256),
        interleaved,
        part_of_another,
        smooth_image(4, 400, 90, 3),
        smooth_image(3, 1, 1, 4),
    ]


def test_a_batch_gives_the_results_of_single_images(artifact: Artifact, images: list[Tensor]) -> None:
    found = artifact.detect_images(images, LOW, 0.3)
    one_by_one = [artifact.detect_image(image, LOW, 0.3) for image in images]
    assert [len(one.scores) for one in found] == [len(one.scores) for one in one_by_one]
    assert len({len(one.scores) for one in found}) > 2
    for one, expected in zip(found, one_by_one, strict=True):
        assert_close(one, expected)


def test_images_on_the_device_and_elsewhere(artifact_path: Path, device: torch.device) -> None:
    artifact = load_artifact(artifact_path, device)
    pictures = [smooth_image(3, 200, 240, seed) for seed in range(4)]
    mixed = [pictures[0], pictures[1].to(device), pictures[2], pictures[3].to(device)]
    for one, expected in zip(
        artifact.detect_images(mixed, LOW), artifact.detect_images(pictures, LOW), strict=True
    ):
        assert torch.equal(one.boxes, expected.boxes)
        assert torch.equal(one.scores, expected.scores)
        assert_close(one, expected)


def test_results_are_copies(artifact: Artifact, images: list[Tensor]) -> None:
    """A view would keep the memory of all slots."""
    assert artifact.detect_images([]) == []
    for found in artifact.detect_images(images, LOW):
        assert found.boxes.untyped_storage().nbytes() == 16 * len(found.scores)
        assert found.scores.untyped_storage().nbytes() == 4 * len(found.scores)


def test_boxes_are_in_pixels_of_the_photograph(artifact: Artifact) -> None:
    pixels = smooth_image(1, 240, 240)  # fills the canvas, so that no box lies in its padding
    whole = artifact.detect_image(pixels, LOW)
    assert len(whole.scores) > 3
    larger = Photo(pixels, 960, 960, (0, 0, 960, 960))
    assert_close(artifact.detect_image(larger, LOW), whole, scale=4)
    part = Photo(pixels, 1000, 1000, (500, 500, 740, 740))
    assert_close(artifact.detect_image(part, LOW), whole, shift=500)
    found = artifact.detect_images([part, Photo.of(pixels), larger], LOW)
    for one, (scale, shift) in zip(found, [(1, 500), (1, 0), (4, 0)], strict=True):
        assert_close(one, whole, scale, shift)


def test_boxes_end_where_the_photograph_ends(artifact: Artifact) -> None:
    """A picture decoded at an eighth may reach beyond the photograph."""
    photo = Photo(smooth_image(1, 200, 240), 1914, 1595, (-6, -5, 1914, 1595))
    boxes = artifact.detect_image(photo, 0.0).boxes
    assert boxes.min() == 0
    assert boxes[:, 2].max() <= 1914
    assert boxes[:, 3].max() <= 1595
    unclipped = Photo(smooth_image(1, 200, 240), 4000, 4000, (0, 0, 1920, 1600))
    assert artifact.detect_image(unclipped, 0.0).boxes[:, 2].max() > 1914


_PIXELS = torch.zeros(3, 5, 5, dtype=torch.uint8)


_SHAPE = " must have the shape [C, H, W] with C = 1, 3 or 4, got "
_WINDOW = ".window must be x1, y1, x2, y2 with x1 < x2 and y1 < y2, got "


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        (_PIXELS.float(), " must be uint8, got float32"),
        (_PIXELS[:2], f"{_SHAPE}[2, 5, 5]"),
        (_PIXELS.permute(1, 2, 0), f"{_SHAPE}[5, 5, 3]; permute(2, 0, 1) puts C first"),
        (_PIXELS[0], f"{_SHAPE}[5, 5]"),
        (_PIXELS[:, :0], " must have at least one row and one column, got [3, 0, 5]"),
        (_PIXELS.numpy(), " must be a tensor or a Photo, got ndarray; use read_photo for a file"),
        (Photo(_PIXELS.int(), 5, 5, (0, 0, 5, 5)), ".pixels must be uint8, got int32"),
        (Photo(_PIXELS, 5, 5, (0, 0, 0, 5)), f"{_WINDOW}(0, 0, 0, 5)"),
        (Photo(_PIXELS, 5, 5, (0, 0, float("nan"), 5)), f"{_WINDOW}(0, 0, nan, 5)"),
        (Photo(_PIXELS, 0, 5, (0, 0, 5, 5)), " must have at least one row and one column, got 0 x 5"),
    ],
)
def test_bad_images_are_named(artifact: Artifact, bad: Any, rule: str) -> None:
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: artifact.detect_image(bad), "image"),
        (lambda: artifact.detect_images([_PIXELS, bad]), "images[1]"),
    ]
    for call, name in calls:
        with pytest.raises((TypeError, ValueError), match="must") as caught:
            call()
        assert str(caught.value) == name + rule


def test_several_threads_at_once(artifact: Artifact, images: list[Tensor]) -> None:
    expected = artifact.detect_images(images, LOW)

    def work(number: int) -> None:
        for turn in range(5):
            first = (number + turn) % len(images)
            for one, other in zip(artifact.detect_images(images[first:], LOW), expected[first:], strict=True):
                assert_close(one, other)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
