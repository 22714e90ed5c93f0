"""The checked copy of a detector: weights that hooks compute become parameters of the same values."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_detectors import Brightest, Named
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

from lensbox.common.errors import ArtifactError
from lensbox.export.detector.copies import plain_copy
from lensbox.runtime.torchscript import quiet_torchscript


class Filtered(Brightest):
    """Filter the canvas with a convolution, whose weight a hook may compute."""

    def __init__(self, wrap: Callable[[nn.Module], Any] = lambda layer: layer) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Conv2d(1, 1, 3, padding=1)
        self.layer = wrap(self.layer)

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        filtered = self.layer(images.float() / 255).sigmoid() * 255
        return super().detect(filtered.byte(), score_threshold, iou_threshold)


def assert_alike(copied: Any, detector: Filtered) -> None:
    canvases = torch.randint(0, 256, (3, 1, 64, 64), dtype=torch.uint8)
    torch.testing.assert_close(copied.detect(canvases, 0.2, 0.5), detector.detect(canvases, 0.2, 0.5))


@pytest.mark.parametrize(
    "wrap",
    [
        weight_norm,
        spectral_norm,
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        parametrizations.orthogonal,
        lambda layer: prune.l1_unstructured(layer, "weight", 0.3),
        torch.compile,
    ],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_computed_weights_become_parameters(wrap: Callable[[nn.Module], Any]) -> None:
    detector = Filtered(wrap).eval()
    if wrap is not torch.compile:  # (compiling takes a minute)
        detector.layer(torch.zeros(1, 1, 8, 8)).sum().backward()  # leaves a weight with a gradient
    copied: Any = plain_copy(detector)
    assert type(copied.layer) is nn.Conv2d
    assert sorted(copied.state_dict()) == ["layer.bias", "layer.weight"]
    if wrap is not torch.compile:
        assert_alike(copied, detector)


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch copies scripted modules so
def test_scripted_parts_stay() -> None:
    with quiet_torchscript():
        detector = Filtered(torch.jit.script).eval()
    assert_alike(plain_copy(detector), detector)


def test_names_tensors_that_cannot_be_copied() -> None:
    detector: Any = Brightest()
    detector.kept = [torch.ones(1, requires_grad=True) * 2]
    with pytest.raises(ArtifactError, match=r"copy\.deepcopy fails: .* Detach tensors that it keeps"):
        plain_copy(detector)
