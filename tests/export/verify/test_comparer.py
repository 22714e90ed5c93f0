"""Detectors whose results change by themselves: the export says why, and how to export them."""

from pathlib import Path

import pytest
import torch
from small_detectors import Named
from torch import Tensor, nn

from lensbox.common.errors import ArtifactError
from lensbox.export import save_artifact
from lensbox.model import DetectorSpec
from lensbox.runtime import load_artifact


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
