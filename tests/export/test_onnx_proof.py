"""The proof before an ONNX file is written: each planted error must make it fail."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from user_detectors import Landmarks, RedAndBlue

from lensbox.artifact.metadata import ArtifactMetadata
from lensbox.export.artifact_writer import describe
from lensbox.export.onnx_exporter import OnnxExportError
from lensbox.export.onnx_proof import prove
from lensbox.model import Detector

Found = dict[str, Tensor]
Error = Callable[[Found, Tensor, float, float], None]


class Other:
    """A runtime whose answers are the detector's with an error."""

    def __init__(self, detector: Detector, error: Error) -> None:
        self.detector, self.error = detector, error

    def detect_named(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Found:
        found = self.detector.detect(images, score_threshold, iou_threshold)
        assert isinstance(found, dict)
        found = {name: value.clone() for name, value in found.items()}
        self.error(found, images, score_threshold, iou_threshold)
        return found


@pytest.fixture(scope="module")
def detector() -> RedAndBlue:
    return RedAndBlue().eval()


@pytest.fixture(scope="module")
def metadata(detector: RedAndBlue) -> ArtifactMetadata:
    with torch.no_grad():
        return describe(detector, (0.4, 0.3))


def artifact_of(detector: Detector, metadata: ArtifactMetadata, error: Error) -> Any:
    report = SimpleNamespace(passed=True)
    module, device = Other(detector, error), torch.device("cpu")
    return SimpleNamespace(metadata=metadata, self_test=lambda: report, module=module, device=device)


def nothing(found: Found, images: Tensor, score: float, iou: float) -> None:
    pass


def rounding(found: Found, images: Tensor, score: float, iou: float) -> None:
    found["boxes"] *= 1 + 1e-6
    found["scores"] += 1e-6


@pytest.mark.parametrize("error", [nothing, rounding])
def test_rounding_passes(detector: RedAndBlue, metadata: ArtifactMetadata, error: Error) -> None:
    agreement = prove(detector, artifact_of(detector, metadata, error), [])
    assert agreement.holds
    assert agreement.detections > 1000
    assert agreement.ties == 0
    assert (agreement.scores > 0) == (error is rounding)


def far_off_in_large_batches(found: Found, images: Tensor, score: float, iou: float) -> None:
    if len(images) == 32:
        found["boxes"][5] += 52


def three_pixels(found: Found, images: Tensor, score: float, iou: float) -> None:
    found["boxes"] += 3


def scores_too_high(found: Found, images: Tensor, score: float, iou: float) -> None:
    found["scores"] += 0.01


def other_labels(found: Found, images: Tensor, score: float, iou: float) -> None:
    found["labels"] = 1 - found["labels"]


def last_one_lost(found: Found, images: Tensor, score: float, iou: float) -> None:
    found["counts"] = (found["counts"] - 1).clamp(min=0)


def not_a_number(found: Found, images: Tensor, score: float, iou: float) -> None:
    found["boxes"][:] = torch.nan


def of_the_neighbour(found: Found, images: Tensor, score: float, iou: float) -> None:
    for name, value in found.items():
        found[name] = value.roll(1, dims=0)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (far_off_in_large_batches, "in a batch of 32, .*has no counterpart; the nearest is"),
        (three_pixels, "are others than the detector's, of about the same score"),
        (scores_too_high, "has no counterpart"),
        (other_labels, "are others than the detector's"),
        (last_one_lost, "has no counterpart"),
        (not_a_number, "boxes are of another dtype or shape, or not finite"),
        (of_the_neighbour, "in a batch of 2,"),
    ],
)
def test_an_error_is_refused(
    detector: RedAndBlue, metadata: ArtifactMetadata, error: Error, message: str
) -> None:
    with pytest.raises(OnnxExportError, match=f"(?s)does not find what the detector finds: .*{message}"):
        prove(detector, artifact_of(detector, metadata, error), [])


@pytest.mark.parametrize("name", ["score", "iou"])
def test_a_threshold_that_became_a_constant_is_refused(
    detector: RedAndBlue, metadata: ArtifactMetadata, name: str
) -> None:
    def constant(found: Found, images: Tensor, score: float, iou: float) -> None:
        score, iou = (0.4, iou) if name == "score" else (score, 0.3)
        found.update(detector.detect(images, score, iou))

    with pytest.raises(OnnxExportError, match="does not find what the detector finds"):
        prove(detector, artifact_of(detector, metadata, constant), [])


def test_the_users_pictures_are_part_of_it(detector: RedAndBlue, metadata: ArtifactMetadata) -> None:
    picture = torch.zeros(3, 192, 320, dtype=torch.uint8)
    picture[0, 40:80, 40:80] = 255
    picture[2, 100:140, 200:240] = 255

    def only_there(found: Found, images: Tensor, score: float, iou: float) -> None:
        for index in (images == picture).all(dim=3).all(dim=2).all(dim=1).nonzero():
            found["boxes"][index] += 10

    assert prove(detector, artifact_of(detector, metadata, only_there), []).holds
    with pytest.raises(OnnxExportError, match="canvas 1 in a batch of 1"):
        prove(detector, artifact_of(detector, metadata, only_there), [picture])


@pytest.mark.parametrize("output", ["corners", "embedding", "cell"])
def test_further_outputs_are_compared(output: str) -> None:
    landmarks = Landmarks().eval()
    with torch.no_grad():
        metadata = describe(landmarks, (0.3, 0.5))

    def shifted(found: Found, images: Tensor, score: float, iou: float) -> None:
        found[output] += 1

    with pytest.raises(OnnxExportError, match="does not find what the detector finds"):
        prove(landmarks, artifact_of(landmarks, metadata, shifted), [])
