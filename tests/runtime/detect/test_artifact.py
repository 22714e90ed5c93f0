"""Artifacts: the detector's answers for every kind of image, its loss, errors in one sentence."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
import torch
from box_reference import loss_reference, random_boxes
from picture_files import smooth_image
from small_detectors import Brightest
from torch import Tensor

from lensbox.export import save_artifact
from lensbox.runtime import Artifact, Photo, load_artifact


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
        torch.testing.assert_close(one.scores, expected.scores)
        torch.testing.assert_close(one.boxes, expected.boxes, rtol=1e-4, atol=1e-3)  # a batch of two
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


_PIXELS = torch.zeros(3, 5, 5, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (_PIXELS.float(), "float32"),
        (_PIXELS[:2], "[2, 5, 5]"),
        (_PIXELS.permute(1, 2, 0), "[5, 5, 3]; permute(2, 0, 1) puts C first"),
        (_PIXELS.to("meta"), "a tensor torch.strided on meta"),
        (_PIXELS.to_sparse(), "a tensor torch.sparse_coo on cpu"),
        (_PIXELS[:, :0], "[3, 0, 5]"),
        (_PIXELS.numpy(), "[3, 5, 5]"),
        (Photo(_PIXELS.int(), 5, 5, (0, 0, 5, 5)), "int32"),
        (Photo(_PIXELS, 5, 5, (0, 0, float("nan"), 5)), "(0, 0, nan, 5)"),
        (Photo(_PIXELS, 0, 5, (0, 0, 5, 5)), "0 x 5"),
    ],
)
def test_bad_images_are_named(artifact: Artifact, bad: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^image.* must .*got {re.escape(message)}"):
        artifact.detect_image(bad)
    with pytest.raises((TypeError, ValueError), match=rf"^images\[1\].* must .*got {re.escape(message)}"):
        artifact.detect_images([_PIXELS, bad])
