"""The loss of several images: weights, loss per image, gradients; against float64 references."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from box_reference import Tolerance, loss_reference, random_boxes
from torch import Tensor, nn
from user_detectors import Brightest

from lensbox.export.pipeline import save_artifact
from lensbox.runtime import Artifact, load_artifact
from lensbox.runtime.box_loss import BoxPairs, LossUnsupportedError

_CLOSE: Tolerance = {"rtol": 1e-9, "atol": 1e-12}


class Distance(Brightest):
    """A detector with its own loss: the mean over images of their mean distance, times a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(2.0))

    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        there = (targets[..., 3] != 0).to(predictions.dtype)
        distance = (predictions - targets).abs().mean(dim=-1) * there
        return self.factor * (distance.sum(dim=-1) / there.sum(dim=-1).clamp(min=1)).mean()


class WithoutGradient(Brightest):
    """A detector whose loss has no gradient."""

    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        return (predictions > targets).to(predictions.dtype).mean()


def saved(detector: nn.Module, folder: Path) -> Artifact:
    save_artifact(detector, folder / "detector.pt")  # type: ignore[arg-type]  # (checked by save_artifact)
    return load_artifact(folder / "detector.pt")


@pytest.fixture(scope="module")
def giou(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return saved(Brightest(), tmp_path_factory.mktemp("giou"))


def pairs_of(sizes: Sequence[int], weighted: bool = False) -> BoxPairs:
    """Return random boxes; every fifth target is padding."""
    torch.manual_seed(len(sizes))
    total = sum(sizes)
    predictions = random_boxes(total, dtype=torch.float64)
    targets = random_boxes(total, dtype=torch.float64)
    targets[4::5] = 0
    weights = torch.rand(total, dtype=torch.float64) * 3 * (targets[:, 3] != 0) if weighted else None
    return BoxPairs(predictions, targets, tuple(sizes), weights)


@pytest.mark.parametrize("sizes", [(6, 6, 6), (3, 0, 11, 1), (7,), (0, 0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_equal_the_reference(giou: Artifact, sizes: tuple[int, ...], weighted: bool) -> None:
    pairs = pairs_of(sizes, weighted)
    found = giou.losses(pairs, per_image=True, gradient=True)
    predictions = pairs.predictions.clone().requires_grad_()
    expected = loss_reference(predictions, pairs.targets, pairs.weights)
    torch.testing.assert_close(found.loss, float(expected.detach()), **_CLOSE)
    parts = pairs.images()
    alone = [float(loss_reference(part.predictions, part.targets, part.weights)) for part in parts]
    torch.testing.assert_close(found.per_image, alone, **_CLOSE)
    assert len(alone) == len(sizes)
    if expected.requires_grad and len(predictions):
        (gradient,) = torch.autograd.grad(expected, predictions)
        torch.testing.assert_close(found.gradient, gradient, **_CLOSE)
        assert gradient.abs().max() > 0
    assert found.gradient is not None
    assert found.gradient.shape == (sum(sizes), 4)


def test_returns_only_what_is_requested(giou: Artifact) -> None:
    pairs = pairs_of((2, 2))
    assert giou.has_giou_loss
    assert giou.losses(pairs) == (giou.loss(pairs.predictions, pairs.targets), None, None)
    assert not pairs.predictions.requires_grad
    found = giou.losses(BoxPairs(pairs.predictions, pairs.targets), per_image=True)
    assert found.per_image == [found.loss]  # no batch dimension


def test_boxes_made_in_inference_mode_have_a_gradient(giou: Artifact) -> None:
    expected = giou.losses(pairs_of((3, 1), weighted=True), gradient=True).gradient
    with torch.inference_mode():
        found = giou.losses(pairs_of((3, 1), weighted=True), gradient=True).gradient
    assert expected is not None
    assert found is not None
    assert torch.equal(found, expected)


@pytest.mark.parametrize("sizes", [(4, 4), (3, 1, 2)])
def test_a_detector_s_own_loss(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    detector = Distance()
    artifact = saved(detector, tmp_path)
    assert not artifact.has_giou_loss
    pairs = pairs_of(sizes)
    found = artifact.losses(pairs, per_image=True, gradient=True)
    # A mean of means: images are padded, not concatenated.
    alone = [float(detector.loss(image.predictions, image.targets).detach()) for image in pairs.images()]
    assert found.per_image == pytest.approx(alone)
    assert found.loss == pytest.approx(sum(alone) / len(alone))
    for index in (0, -1):
        shifted = pairs.predictions.clone()
        shifted[index, 2] += 1e-4
        changed = artifact.losses(BoxPairs(shifted, pairs.targets, pairs.sizes)).loss
        assert found.gradient is not None
        assert (changed - found.loss) / 1e-4 == pytest.approx(float(found.gradient[index, 2]), abs=1e-6)
    with pytest.raises(LossUnsupportedError, match="weights must be left out"):
        artifact.losses(pairs_of(sizes, weighted=True))


def test_a_loss_without_a_gradient(tmp_path: Path) -> None:
    artifact = saved(WithoutGradient(), tmp_path)
    assert artifact.losses(pairs_of((2,))).gradient is None
    with pytest.raises(LossUnsupportedError, match="gradient must be left out"):
        artifact.losses(pairs_of((2,)), gradient=True)
