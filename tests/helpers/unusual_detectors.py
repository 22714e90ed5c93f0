"""Detectors that some formats cannot hold."""

import torch
from torch import Tensor
from user_detectors import Brightest

from lensbox.ops.canvas import fit_to_canvases


class Deciding(Brightest):
    """Branch on a value, which torch.export cannot trace."""

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
    """Detect the four brightest cells; boxes reach beyond the canvas, some lie wholly outside."""

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
    """Return as many slots as the largest count in the batch."""

    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        boxes, scores = self.cells(images)
        counts = (scores > score_threshold).sum(dim=1)
        most = int(counts.max())
        return boxes[:, :most], scores[:, :most], counts


class NeverAlone(Brightest):
    """Fail for a single canvas, which only the export passes."""

    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        if images.shape[0] == 1:
            raise ValueError("images must be several")
        return super().detect(images, score_threshold, iou_threshold)
