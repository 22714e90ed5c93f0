"""A detector for any batch, around a network with fixed batch sizes."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from lensbox.model import Detector
from lensbox.model.protocol_check import named
from lensbox.ops.canvas import cut_into_batches


class FixedBatches(nn.Module):
    """A detector for any batch, around a network with fixed batch sizes."""

    def __init__(self, detector: Detector, sizes: Sequence[int]) -> None:
        super().__init__()
        self.specification = detector.specification
        self.detector = cast(Any, detector)
        self.sizes = sorted(sizes, reverse=True)

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        """See `Detector.detect`."""
        parts = [
            named(self.detector.detect(part, score_threshold, iou_threshold))
            for part in cut_into_batches(images, self.sizes)
        ]
        return {name: torch.cat([part[name] for part in parts])[: len(images)] for name in parts[0]}
