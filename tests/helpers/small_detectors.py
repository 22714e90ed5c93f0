"""Small detectors with random weights, for tests of everything but accuracy."""

import dataclasses
from pathlib import Path

import torch
from torch import nn

from lensbox.export.pipeline import save_artifact
from lensbox.model import DetectorConfig, FaceDetector

# Few layers and ReLU: even random weights then distinguish pictures.
TINY = DetectorConfig(
    stem_width=4,
    widths=(8, 8, 16, 16),
    depths=(1, 1, 1, 1),
    pyramid_width=8,
    pyramid_depths=(0, 0, 0, 0),
    dense_heads=(True, True, False, True),
    activation="relu",
)
SHALLOW = dataclasses.replace(TINY, stem_width=8, widths=(8, 16, 16, 16), depths=(0, 0, 0, 0))


def varied_detector(spread: float, config: DetectorConfig = TINY) -> FaceDetector:
    """Return a detector in eval mode whose predictions differ between anchors, more so for a larger `spread`.

    Batch norm statistics are not the initial ones, so that folding matters.
    """
    torch.manual_seed(0)
    detector = FaceDetector(config)
    for layer in detector.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.uniform_(layer.bias, -0.3, 0.3)
    for head in (detector.head4, detector.head8, detector.head16, detector.head32):
        nn.init.normal_(head.prediction.weight, std=spread)
    with torch.no_grad():
        detector(torch.randint(0, 256, (4, 1, 256, 256)).float())
    return detector.eval()


def save_random_artifact(path: Path) -> None:
    """Write an artifact whose low default score threshold passes some boxes."""
    torch.manual_seed(0)
    save_artifact(FaceDetector(SHALLOW).eval(), path, score_threshold=0.0104)
