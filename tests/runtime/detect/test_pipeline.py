"""Many images in one batch: the answers of single images, in pixels of their photographs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from picture_files import smooth_image, squares
from small_detectors import Changed
from torch import Tensor

from lensbox.export.detector.wrapper import DetectorWrapper
from lensbox.runtime import Artifact, ArtifactError, Detections, Photo, load_artifact


def relabelled(colors: Artifact, change: Callable[[Tensor], Tensor]) -> Artifact:
    detector: Any = Changed(lambda found: {**found, "labels": change(found["labels"])})
    return Artifact(DetectorWrapper(detector), colors.metadata, colors.device)


def test_labels_must_name_a_class_in_used_slots(colors: Artifact) -> None:
    unused = relabelled(colors, lambda labels: labels.index_fill(1, torch.arange(2, 30), -7))
    found = unused.detect_image(squares(2), 0.4, 0.1)
    assert found.labels is not None
    assert len(found.labels) == 2
    with pytest.raises(ArtifactError, match="labels from 0 to 1, as it has 2 classes, got 2"):
        relabelled(colors, lambda labels: labels + 1).detect_image(squares(2), 0.4, 0.1)


LOW = 0.03


def assert_close(actual: Detections, expected: Detections, scale: float = 1.0, shift: float = 0.0) -> None:
    """Compare with a tolerance: a batch may use other kernels than one image."""
    assert actual.boxes.dtype == actual.scores.dtype == torch.float32
    assert actual.boxes.is_cpu
    assert actual.scores.is_cpu
    torch.testing.assert_close(actual.scores, expected.scores, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(actual.boxes, expected.boxes * scale + shift, rtol=1e-4, atol=1e-2)


def test_images_on_the_device_and_elsewhere(artifact_path: Path, device: torch.device) -> None:
    artifact = load_artifact(artifact_path, device)
    pictures = [smooth_image(3, 200, 240, seed) for seed in range(4)]
    mixed = [pictures[0], pictures[1].to(device), pictures[2], pictures[3].to(device)]
    found, expected = (
        [(one.boxes, one.scores) for one in artifact.detect_images(images, LOW)]
        for images in (mixed, pictures)
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert all(boxes.is_cpu and scores.is_cpu for boxes, scores in found)


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
