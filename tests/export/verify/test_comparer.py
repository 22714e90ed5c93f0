"""The limits of a comparison; why the results of a detector change by themselves, and the remedy."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_detectors import Named
from torch import Tensor, nn

from lensbox.common.errors import ArtifactError
from lensbox.export import save_artifact
from lensbox.export.verify.comparer import Comparer
from lensbox.model import DetectorSpec
from lensbox.runtime import Detections, load_artifact
from lensbox.runtime.detect.self_test import Difference

THRESHOLDS = 0.5, 0.5


def comparer(unstable_share: float) -> Comparer:
    """Return the comparison with a detector of which this share of detections is unstable."""
    reference: Any = SimpleNamespace(unstable_share=lambda thresholds: unstable_share, slots=None)
    return Comparer(reference, "float32", "cpu", 0.0)


@pytest.mark.parametrize(("shift", "fits"), [(0.1, True), (0.5, False)])
def test_boxes_may_move_by_a_small_part_of_their_coordinates(shift: float, fits: bool) -> None:
    boxes, scores = torch.tensor([[1000.0, 1000.0, 1200.0, 1200.0]]), torch.tensor([0.9])
    compared = comparer(0.0)
    moved = compared.difference([Detections(boxes, scores)], [Detections(boxes + shift, scores)], THRESHOLDS)
    assert (compared.faults(moved, THRESHOLDS) == []) is fits


@pytest.mark.parametrize(("unmatched", "fits"), [(17, True), (19, False), (20, False)])
def test_rounding_never_explains_that_nothing_is_in_common(unmatched: int, fits: bool) -> None:
    difference = Difference(expected=10, unexplained=["others"], unexplained_count=unmatched)
    assert (comparer(2.0).faults(difference, THRESHOLDS) == []) is fits


class Cells(nn.Module):
    """Sixteen cells of a canvas, each with its mean as score, after a layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.specification = DetectorSpec(height=64, width=64, channels=1)
        self.layer = layer

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        cells = nn.functional.avg_pool2d(images.float() / 255, 16)
        scores, order = self.layer(cells).flatten(1).sigmoid().sort(dim=1, descending=True)
        corner = torch.stack([order % 4, order // 4], dim=-1) * 16.0
        boxes = torch.cat([corner, corner + 16], dim=-1)
        return {"boxes": boxes, "scores": scores, "counts": (scores > score_threshold).sum(dim=1)}


class Fixed(nn.BatchNorm2d):
    """A batch norm that stays in training mode."""

    def train(self, mode: bool = True) -> "Fixed":
        super().train(True)
        return self


class OverBatch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / x.max()


class Drops(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.5, training=True)


class Counts(nn.Module):
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * (1 + 0.01 * self.calls)


def without_statistics() -> nn.Module:
    return nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False))


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (without_statistics, r"have no running statistics: layer\.0\. Train .* --batch 1"),
        (lambda: Fixed(1), r"have no running statistics: layer\. Train|not find the same in the same images"),
        (OverBatch, r"depends on the other images of the batch\. Compute each .* --batch 1"),
        (Drops, "not find the same in the same images each time: remove random numbers"),
        (Counts, "not find the same in the same images each time"),
    ],
)
def test_names_the_reason(layer: type[nn.Module], message: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    with pytest.raises(ArtifactError, match=message) as caught:
        save_artifact(Cells(layer()), tmp_path / "a.pt")
    assert "at [" not in str(caught.value)  # no boxes of the comparison


@pytest.mark.parametrize("kind", ["torchscript", pytest.param("program", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("layer", [without_statistics, OverBatch])
def test_the_remedy_helps(kind: str, layer: type[nn.Module], tmp_path: Path) -> None:
    detector = Cells(layer()).eval()
    save_artifact(detector, tmp_path / "a.pt", kind=kind, batches=(1,))
    canvases = torch.randint(0, 256, (3, 1, 64, 64), dtype=torch.uint8)
    found = load_artifact(tmp_path / "a.pt").detect(canvases, 0.1, 0.5)["scores"]
    wanted = torch.cat([detector.detect(canvas[None], 0.1, 0.5)["scores"] for canvas in canvases])
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
