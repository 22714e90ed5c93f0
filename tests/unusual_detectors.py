"""Detectors that not every format can hold whole."""

import torch
from torch import Tensor
from user_detectors import Brightest


class Deciding(Brightest):
    """Goes one way or another with a value, which no graph of torch.export does."""

    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        if score_threshold > 0.5:
            images = 255 - images
        return super().detect(images, score_threshold, iou_threshold)


class FittingItsOwnWay(Brightest):
    def preprocess(self, images: list[Tensor], windows: Tensor | None) -> tuple[Tensor, Tensor]:
        canvases = torch.zeros(len(images), 1, 64, 64, dtype=torch.uint8)
        return canvases, torch.ones(len(images), 6)


class LosingItsOwnWay(Brightest):
    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        return (predictions - targets).abs().mean()


class LosingNothing(Brightest):
    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        return torch.zeros([])
