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


class BrightestRows(Brightest):
    """The four brightest cells, in boxes that reach beyond the canvas, some as a whole."""

    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        boxes, scores = self.cells(images)
        return boxes, scores, (scores > score_threshold).sum(dim=1)

    def cells(self, images: Tensor) -> tuple[Tensor, Tensor]:
        cells = torch.nn.functional.avg_pool2d(images.float() / 255, 16)
        scores, index = cells.flatten(1).topk(4)
        corner = torch.stack([index % 4, index // 4], dim=-1) * 16.0 - 20.0
        return torch.cat([corner, corner + 18.0], dim=-1), scores


class AsManySlotsAsNeeded(BrightestRows):
    """Return as many slots as the image with the most detections needs, so none if nothing is found."""

    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        boxes, scores = self.cells(images)
        counts = (scores > score_threshold).sum(dim=1)
        most = int(counts.max())
        return boxes[:, :most], scores[:, :most], counts


class NeverAlone(Brightest):
    """Fails where the export asks for one canvas, after it was found to follow the protocol."""

    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        if images.shape[0] == 1:
            raise ValueError("images must be several")
        return super().detect(images, score_threshold, iou_threshold)
