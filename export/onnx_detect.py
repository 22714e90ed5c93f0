"""Any detector's `detect` as a module that exporters of graphs take: its thresholds are tensors."""

from typing import cast

import torch
from torch import Tensor, nn

from lensbox.export.onnx_nms import ThresholdsAsTensors
from lensbox.model import Detector
from lensbox.model.protocol_check import named


class DetectGraph(nn.Module):
    """outputs: the names of what `forward` returns, in their order."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        specification = detector.specification
        labels = ["labels"] if specification.classes else []
        self.outputs = ("boxes", "scores", "counts", *labels, *specification.extras)
        self.detector = cast(nn.Module, detector)

    def forward(self, images: Tensor, score_threshold: Tensor, iou_threshold: Tensor) -> tuple[Tensor, ...]:
        """images: uint8 [B, c, h, w]; thresholds: float32 []."""
        with torch.no_grad(), ThresholdsAsTensors():
            found = named(self.detector.detect(images, score_threshold, iou_threshold))  # type: ignore[operator]
        return tuple(found[name] for name in self.outputs)
