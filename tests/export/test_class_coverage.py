"""The self-test's picture shows as many classes as the detector finds, and the log names the others."""

import logging
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import lensbox.ops  # noqa: F401 (registers torch.ops.lensbox)
from lensbox.export.pipeline import save_artifact
from lensbox.model import DetectorSpec


class Quarters(nn.Module):
    """The brightest cell of each quarter of a canvas; the class is its column within the quarter, 0 to 3.

    Class 4, "never", is none's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.specification = DetectorSpec(
            height=64, width=64, channels=1, classes=("first", "second", "third", "fourth", "never")
        )

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        cells = torch.nn.functional.avg_pool2d(images.float() / 255, 8)  # [B, 1, 8, 8]
        quarters = cells.view(-1, 2, 4, 2, 4).transpose(2, 3).flatten(3)  # [B, 2, 2, 16]
        scores, index = quarters.max(dim=3)
        scores, order = scores.flatten(1).sort(descending=True)
        index = index.flatten(1).gather(1, order)
        x = (order % 2 * 4 + index % 4) * 8.0
        y = (order // 2 * 4 + index // 4) * 8.0
        return {
            "boxes": torch.stack([x, y, x + 8, y + 8], dim=-1),
            "scores": scores,
            "counts": (scores > score_threshold).sum(dim=1),
            "labels": index % 4,
        }


def test_as_many_classes_as_it_finds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "lensbox"):
        metadata = save_artifact(Quarters(), tmp_path / "quarters.pt")
    assert metadata.self_test.labels is not None
    assert sorted(set(metadata.self_test.labels.tolist())) == [0, 1, 2, 3]
    assert "the self-test covers 4 of 5 classes, not never" in caplog.messages
