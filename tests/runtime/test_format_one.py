"""Artifacts of format 1 load, and answer as they did."""

from pathlib import Path

import PIL.Image
import pytest
import torch
from exif_files import exif, jpeg_with_exif
from format_one import SingleImageDetector, bright_cells, save_format_one
from torch import Tensor

from lensbox.runtime.artifact import Artifact
from lensbox.runtime.artifact_loading import load_artifact
from lensbox.runtime.detection import Detections
from lensbox.runtime.image_io import read_image
from lensbox.runtime.photo import Photo


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return load_artifact(save_format_one(tmp_path_factory.mktemp("old") / "old.pt"))


def _images() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = [(1, 40, 90), (3, 200, 50), (4, 64, 64), (3, 70, 300)]
    return [torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator) for shape in shapes]


def _eager(image: Tensor, score_threshold: float) -> Detections:
    detector = SingleImageDetector()
    canvas, geometry = detector.preprocess(image)
    boxes, scores, counts = detector.detect(canvas[None], score_threshold, 0.5)
    count = int(counts[0])
    return Detections(detector.restore(boxes[0, :count], geometry), scores[0, :count])


def _assert_equal(actual: Detections, expected: Detections) -> None:
    assert torch.equal(actual.boxes, expected.boxes)
    assert torch.equal(actual.scores, expected.scores)


def test_it_passes_its_self_test_and_tells_no_canvas(artifact: Artifact) -> None:
    assert artifact.self_test().passed
    assert artifact.metadata.format_version == 1
    assert artifact.metadata.canvas is None
    assert artifact.loss(torch.tensor([[0.0, 0, 2, 2]]), torch.tensor([[1, 0, 3, 2]])) == pytest.approx(2 / 3)


def test_one_image_and_batches(artifact: Artifact) -> None:
    expected = [_eager(image, 0.1) for image in _images()]
    assert all(len(found.scores) > 3 for found in expected)
    for image, found in zip(_images(), expected, strict=True):
        _assert_equal(artifact.detect_image(image, 0.1), found)
        _assert_equal(artifact.detect_image(Photo.of(image), 0.1), found)
    for one, found in zip(artifact.detect_images(_images(), 0.1), expected, strict=True):
        _assert_equal(one, found)
    assert len(artifact.detect_image(bright_cells()).scores) == 5  # above its own threshold


def test_files_are_decoded_in_full_and_upright(artifact: Artifact, tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    PIL.Image.effect_noise((900, 700), 60).convert("RGB").save(path)
    turned = jpeg_with_exif(path.read_bytes(), exif(6))
    photo = artifact.read_photo(turned)
    assert photo.pixels.shape == (3, 900, 700)
    assert photo.is_whole
    [found] = artifact.detect_files([turned])
    assert isinstance(found, Detections)
    _assert_equal(found, _eager(read_image(turned), 0.3))


def test_a_part_of_a_photograph_is_refused(artifact: Artifact) -> None:
    part = Photo(bright_cells(), 640, 320, (0, 0, 640, 320))
    with pytest.raises(ValueError, match="an artifact of format 1 must be whole and at full size"):
        artifact.detect_image(part)


def test_errors_are_plain(artifact: Artifact) -> None:
    with pytest.raises(ValueError, match=r"^score_threshold must be between 0 and 1, got 1.5$"):
        artifact.detect_image(bright_cells(), 1.5)
