"""Artifacts: the detector's answers for one and many images, errors in one sentence, labels, operators."""

import io
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
import torch
from box_reference import loss_reference, random_boxes
from damaged_files import rewritten, with_metadata
from picture_files import smooth_image, squares
from torch import Tensor
from user_detectors import Brightest

from lensbox.common.errors import ArtifactError
from lensbox.export.pipeline import save_artifact
from lensbox.model import FaceDetector
from lensbox.ops.canvas import fit_to_canvases, restore_boxes
from lensbox.runtime import Artifact, load_artifact
from lensbox.runtime.detect.detection import Detections
from lensbox.runtime.images.photo import Photo


@pytest.mark.parametrize("shape", [(1, 256, 256), (3, 123, 310), (4, 400, 90)])
def test_detections_equal_eager_ones(
    detector: FaceDetector, artifact: Artifact, shape: tuple[int, ...]
) -> None:
    image = smooth_image(*shape)
    actual = artifact.detect_image(image, 0.03, 0.3)
    canvases, geometry = fit_to_canvases([image], None, 256, 256, 1, 0)
    boxes, scores, counts = detector.detect(canvases, 0.03, 0.3)
    count = int(counts[0])
    assert count > 3
    # Folded batch norm sums in another order.
    torch.testing.assert_close(actual.scores, scores[0, :count], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(actual.boxes, restore_boxes(boxes, geometry)[0, :count], rtol=1e-4, atol=1e-3)
    assert (actual.height, actual.width) == shape[1:]


def test_takes_every_kind_of_image(artifact: Artifact, tmp_path: Path) -> None:
    pixels = smooth_image(3, 123, 310)
    array = pixels.permute(1, 2, 0).numpy()
    picture, path = PIL.Image.fromarray(array), tmp_path / "photo.png"
    picture.save(path)
    expected = artifact.detect_image(pixels, 0.03)
    reversed_tensor, reversed_array = pixels.flip(0), array[..., ::-1]
    found = [artifact.detect_image(reversed_tensor, 0.03, color_order="BGR")]
    found += artifact.detect_images([reversed_tensor, reversed_array], 0.03, color_order="BGR")
    with path.open("rb") as file:
        images: list[Any] = [array, picture, path.read_bytes(), io.BytesIO(path.read_bytes()), path, file]
        found += [artifact.detect_image(image, 0.03) for image in (*images, str(path))[1:]]
        found += artifact.detect_images([array, picture], 0.03)
    for one in found:
        assert_close(one, expected)
    gray = array[..., 0]
    tiled, _ = (artifact.detect_image(image, tiles="auto") for image in (path, pixels))
    assert (tiled.width, tiled.height) == (310, 123)
    wanted = artifact.detect_image(pixels[:1], 0.03)
    assert artifact.detect_image(gray, 0.03).scores.equal(wanted.scores)
    with pytest.raises(ValueError, match="color_order must be 'RGB' unless image"):
        artifact.detect_image(path, color_order="BGR")
    for call in (artifact.detect_files, artifact.detect_images):
        with pytest.raises(TypeError, match=f"must be a list .*got the path '{path}'"):
            call(str(path))


def test_default_thresholds_are_those_of_the_export(artifact: Artifact) -> None:
    image = smooth_image(1, 200, 200)
    by_default, explicit = artifact.detect_image(image), artifact.detect_image(image, 0.25, 0.4)
    assert torch.equal(by_default.boxes, explicit.boxes)
    assert torch.equal(by_default.scores, explicit.scores)
    assert (by_default.scores > 0.25).all()
    assert len(artifact.detect_image(image, 0.0).scores) > len(by_default.scores)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("shape", [(7,), (3, 6), (2, 0)])
def test_loss_and_gradient_equal_the_reference(
    artifact: Artifact, shape: tuple[int, ...], mode: Callable[[], Any]
) -> None:
    with mode():
        predictions, targets = (random_boxes(*shape, dtype=torch.float64) for _ in range(2))
        targets[..., 4::5, :] = 0
        loss, gradient = artifact.loss_and_gradient(predictions, targets)
    assert loss == artifact.loss(predictions, targets)
    leaf = predictions.clone().requires_grad_()
    expected = loss_reference(leaf, targets.clone())
    assert gradient is not None
    torch.testing.assert_close(loss, float(expected.detach()), rtol=1e-9, atol=1e-12)
    wanted = torch.autograd.grad(expected, leaf)[0] if leaf.numel() else leaf.detach()
    torch.testing.assert_close(gradient, wanted, rtol=1e-9, atol=1e-12)


class Distance(Brightest):
    """A detector with its own loss."""

    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        return 3 * ((predictions - targets) ** 2).mean()


class Mismatches(Brightest):
    """A detector whose loss has no gradient."""

    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        return (predictions > targets).to(predictions.dtype).mean()


def test_the_gradient_of_a_detector_s_own_loss(tmp_path: Path) -> None:
    detectors: list[Any] = [Distance(), Mismatches()]
    predictions, targets = torch.tensor([[[1.0, 2, 3, 4]]]), torch.tensor([[[1.0, 2, 4, 2]]])
    found = []
    for detector in detectors:
        save_artifact(detector, tmp_path / "detector.pt")
        found.append(load_artifact(tmp_path / "detector.pt").loss_and_gradient(predictions, targets))
    (loss, gradient), without = found
    assert loss == pytest.approx(3 * (1 + 4) / 4)
    assert gradient is not None
    assert gradient.tolist() == [[[0, 0, -1.5, 3]]]
    assert without == (0.25, None)


def test_bad_input_raises_one_sentence(artifact: Artifact) -> None:
    with pytest.raises(ValueError, match=r"^score_threshold must .*got 1\.5$"):
        artifact.detect_image(smooth_image(1, 9, 9), score_threshold=1.5)
    with pytest.raises(ValueError, match=r"^images must .*got \[1, 3, 256, 256\]$"):
        artifact.detect(torch.zeros(1, 3, 256, 256, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"^predictions and targets must .*got \[3, 4\] and \[2, 4\]$"):
        artifact.loss(torch.zeros(3, 4), torch.zeros(2, 4))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            "lensbox::warp(Tensor x) -> Tensor",
            r"needs the operator lensbox::warp\(Tensor x\) -> Tensor, which is not registered: load its"
            ".* is loaded; it has other operators: export the artifact again",
        ),
        (
            "lensbox::padded_nms(Tensor boxes, int mode) -> Tensor",
            r"mode\) -> Tensor, but the loaded library has lensbox::padded_nms\(",
        ),
        # torch's parser raises IndexError for this number.
        ("lensbox::giou(int[99999999999999999999] a) -> Tensor", "which torch cannot read"),
        # The loaded library may have more optional arguments.
        ("lensbox::masked_giou_loss(Tensor pred, Tensor target, Tensor? weight=None) -> Tensor", ""),
    ],
)
def test_requires_the_operators(artifact_path: Path, tmp_path: Path, schema: str, message: str) -> None:
    path = tmp_path / "changed.pt"
    change = with_metadata(lambda values: values.update(ops=[schema]))
    path.write_bytes(rewritten(artifact_path.read_bytes(), change))
    if not message:
        assert load_artifact(path).self_test().passed
        return
    with pytest.raises(ArtifactError, match=message):
        load_artifact(path)


@pytest.mark.gpu
def test_self_test_passes_on_the_gpu(artifact_path: Path) -> None:
    artifact = load_artifact(artifact_path, "cuda")
    report = artifact.self_test()
    assert report.passed, report.failures
    boxes, _, _ = artifact.detect(torch.zeros(1, 1, 256, 256, dtype=torch.uint8))
    assert boxes.device.type == "cuda"


# --- labels ---


class Relabelled:
    """A module whose labels `change` replaces."""

    def __init__(self, module: Any, change: Callable[[Tensor], Tensor]) -> None:
        self.module, self.change = module, change

    def __getattr__(self, name: str) -> object:
        return getattr(self.module, name)

    def detect_named(self, images: Tensor, score: float, iou: float) -> dict[str, Tensor]:
        found: dict[str, Tensor] = self.module.detect_named(images, score, iou)
        return {**found, "labels": self.change(found["labels"])}


def test_labels_must_name_a_class_in_used_slots(colors: Artifact) -> None:
    unused = Relabelled(colors.module, lambda labels: labels.index_fill(1, torch.arange(2, 30), -7))
    found = Artifact(unused, colors.metadata, colors.device).detect_image(squares(2), 0.4, 0.1)
    assert found.labels is not None
    assert len(found.labels) == 2
    beyond = Relabelled(colors.module, lambda labels: labels + 1)
    with pytest.raises(ArtifactError, match="labels from 0 to 1, as it has 2 classes, got 2"):
        Artifact(beyond, colors.metadata, colors.device).detect_image(squares(2), 0.4, 0.1)


# --- many images in one call ---

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


_PIXELS = torch.zeros(3, 5, 5, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (_PIXELS.float(), "float32"),
        (_PIXELS[:2], "[2, 5, 5]"),
        (_PIXELS.permute(1, 2, 0), "[5, 5, 3]; permute(2, 0, 1) puts C first"),
        (_PIXELS[0], "[5, 5]"),
        (_PIXELS[:, :0], "[3, 0, 5]"),
        (_PIXELS.numpy(), "[3, 5, 5]"),
        (Photo(_PIXELS.int(), 5, 5, (0, 0, 5, 5)), "int32"),
        (Photo(_PIXELS, 5, 5, (0, 0, 0, 5)), "(0, 0, 0, 5)"),
        (Photo(_PIXELS, 5, 5, (0, 0, float("nan"), 5)), "(0, 0, nan, 5)"),
        (Photo(_PIXELS, 0, 5, (0, 0, 5, 5)), "0 x 5"),
    ],
)
def test_bad_images_are_named(artifact: Artifact, bad: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^image.* must .*got {re.escape(message)}"):
        artifact.detect_image(bad)
    with pytest.raises((TypeError, ValueError), match=rf"^images\[1\].* must .*got {re.escape(message)}"):
        artifact.detect_images([_PIXELS, bad])


def test_several_threads_at_once(artifact: Artifact, images: list[Tensor]) -> None:
    expected = artifact.detect_images(images, LOW)

    def work(number: int) -> None:
        for turn in range(5):
            first = (number + turn) % len(images)
            for one, other in zip(artifact.detect_images(images[first:], LOW), expected[first:], strict=True):
                assert_close(one, other)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
