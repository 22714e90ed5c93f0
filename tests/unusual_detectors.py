"""Detectors that not every format can hold whole."""

import torch
from torch import Tensor
from user_detectors import Brightest

from lensbox.ops.canvas import fit_to_canvases


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
        canvases, geometry = fit_to_canvases(images, windows, 64, 64, 1, 7)
        return canvases, geometry


class LosingItsOwnWay(Brightest):
    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        return (predictions - targets).abs().mean()


class LosingNothing(Brightest):
    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        return torch.zeros([])
