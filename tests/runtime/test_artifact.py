"""Reading artifacts: what went in comes out; what is damaged, newer or incomplete is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from altered_packages import with_metadata
from damaged_files import rewritten
from picture_files import smooth_image
from torch import Tensor

from lensbox.common.errors import ArtifactError
from lensbox.model import FaceDetector
from lensbox.runtime.detection import Detections
from lensbox.runtime.loading import load_artifact


def rewrite_metadata(source: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Copy an artifact with its `lensbox.json` changed."""
    target.write_bytes(rewritten(source.read_bytes(), with_metadata(change)))


def eager_detections(
    detector: FaceDetector, image: Tensor, score_threshold: float, iou_threshold: float
) -> Detections:
    canvases, geometry = detector.preprocess([image])
    boxes, scores, counts = detector.detect(canvases, score_threshold, iou_threshold)
    count = int(counts[0])
    return Detections(detector.restore(boxes, geometry)[0, :count], scores[0, :count])


@pytest.mark.parametrize("shape", [(1, 256, 256), (3, 123, 310), (4, 400, 90)])
def test_detections_equal_eager_ones(
    detector: FaceDetector, artifact_path: Path, shape: tuple[int, ...]
) -> None:
    image = smooth_image(*shape)
    artifact = load_artifact(artifact_path)
    threshold = 0.03
    actual = artifact.detect_image(image, threshold, 0.3)
    expected = eager_detections(detector, image, threshold, 0.3)
    assert len(expected.scores) > 3
    # Folded batch norm sums in another order.
    torch.testing.assert_close(actual.scores, expected.scores, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(actual.boxes, expected.boxes, rtol=1e-4, atol=1e-3)


def test_defaults_are_those_given_at_export(artifact_path: Path) -> None:
    artifact = load_artifact(artifact_path)
    image = smooth_image(1, 200, 200)
    by_default, explicit = artifact.detect_image(image), artifact.detect_image(image, 0.25, 0.4)
    assert torch.equal(by_default.boxes, explicit.boxes)
    assert torch.equal(by_default.scores, explicit.scores)
    assert (by_default.scores > 0.25).all()
    assert len(artifact.detect_image(image, 0.0).scores) > len(by_default.scores)


def test_loss_is_the_detector_s(detector: FaceDetector, artifact_path: Path) -> None:
    artifact = load_artifact(artifact_path)
    predictions = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2]])
    targets = torch.tensor([[1, 0, 3, 2], [0, 0, 0, 0]], dtype=torch.uint8)
    assert artifact.loss(predictions, targets) == pytest.approx(2 / 3, abs=1e-6)
    assert artifact.loss(predictions[None], targets[None]) == pytest.approx(2 / 3, abs=1e-6)


def test_bad_input_gives_one_plain_sentence(artifact_path: Path) -> None:
    artifact = load_artifact(artifact_path)
    cases: list[tuple[Callable[[], Any], str]] = [
        (
            lambda: artifact.detect_image(smooth_image(1, 9, 9), score_threshold=1.5),
            "score_threshold must be between 0 and 1, got 1.5",
        ),
        (
            lambda: artifact.detect(torch.zeros(1, 3, 256, 256, dtype=torch.uint8)),
            "images must have the shape [B, 1, 256, 256], got [1, 3, 256, 256]",
        ),
        (
            lambda: artifact.loss(torch.zeros(3, 4), torch.zeros(2, 4)),
            "predictions and targets must have the same shape [..., 4], got [3, 4] and [2, 4]",
        ),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=r"must") as caught:
            call()
        assert str(caught.value) == message


def test_missing_operator_is_named(artifact_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "changed.pt"
    rewrite_metadata(
        artifact_path, path, lambda values: values["ops"].append("lensbox::warp(Tensor x) -> Tensor")
    )
    message = (
        r"needs the operator lensbox::warp\(Tensor x\) -> Tensor, which is not registered: load its library"
    )
    with pytest.raises(ArtifactError, match=message):
        load_artifact(path)


def test_operator_with_another_schema_is_named(artifact_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "changed.pt"
    other = "lensbox::padded_nms(Tensor boxes, int mode) -> Tensor"
    rewrite_metadata(artifact_path, path, lambda values: values.update(ops=[other]))
    with pytest.raises(
        ArtifactError, match=r"mode\) -> Tensor, but the loaded library has lensbox::padded_nms\("
    ):
        load_artifact(path)


def test_library_with_more_optional_arguments_is_accepted(artifact_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "changed.pt"
    older = "lensbox::masked_giou_loss(Tensor pred, Tensor target, Tensor? weight=None) -> Tensor"
    rewrite_metadata(artifact_path, path, lambda values: values.update(ops=[older]))
    assert load_artifact(path).self_test().passed


@pytest.mark.gpu
def test_self_test_passes_on_the_gpu(artifact_path: Path) -> None:
    artifact = load_artifact(artifact_path, "cuda")
    report = artifact.self_test()
    assert report.passed, report.failures
    boxes, _, _ = artifact.detect(torch.zeros(1, 1, 256, 256, dtype=torch.uint8))
    assert boxes.device.type == "cuda"


def test_an_op_schema_that_torch_cannot_read(artifact_path: Path, tmp_path: Path) -> None:
    """torch's parser raises IndexError for such a number."""
    schema = "lensbox::giou(int[99999999999999999999] a) -> Tensor"
    path = tmp_path / "schema.pt"
    rewrite_metadata(artifact_path, path, lambda values: values.update(ops=[schema]))
    with pytest.raises(ArtifactError, match="which torch cannot read"):
        load_artifact(path)
