"""A small detector and its artifact."""

from pathlib import Path

import pytest
import torch
from torch import nn

from lensbox.export.artifact import save_artifact
from lensbox.model import DetectorConfig, FaceDetector

TINY = DetectorConfig(stem_width=4, widths=(8, 8, 16, 16), depths=(1, 1, 1, 1), pyramid_width=8)


@pytest.fixture(scope="session")
def detector() -> FaceDetector:
    """In eval mode, with batch norm statistics that are not the initial ones: folding them matters."""
    torch.manual_seed(0)
    detector = FaceDetector(TINY)
    for layer in detector.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.uniform_(layer.bias, -0.3, 0.3)
    for head in (detector.head4, detector.head8, detector.head16, detector.head32):
        nn.init.normal_(head.prediction.weight, std=0.2)
    with torch.no_grad():
        detector(torch.randint(0, 256, (4, 1, 256, 256)).float())
    return detector.eval()


@pytest.fixture(scope="session")
def artifact_path(detector: FaceDetector, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "detector.pt"
    save_artifact(detector, path, score_threshold=0.25, iou_threshold=0.4)
    return path
