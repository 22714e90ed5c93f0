"""Small face detectors with random weights, and small detectors as users of Lensbox write them."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from lensbox.export import save_artifact
from lensbox.model import DetectorConfig, DetectorSpec, FaceDetector
from lensbox.ops.canvas import fit_to_canvases

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


# --- detectors as users write them ---

Named = dict[str, Tensor]


class Brightest(nn.Module):
    """Detect the brightest cell of a gray canvas of 64 x 64 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.specification = DetectorSpec(height=64, width=64, channels=1)

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        cells = torch.nn.functional.avg_pool2d(images.float() / 255, 16)
        scores, index = cells.flatten(1).max(dim=1, keepdim=True)
        corner = torch.stack([index % 4, index // 4], dim=-1) * 16.0
        boxes = torch.cat([corner, corner + 16], dim=-1)
        return {"boxes": boxes, "scores": scores, "counts": (scores[:, 0] > score_threshold).int()}


class RedAndBlue(nn.Module):
    """Detect red and blue objects on a canvas of 320 x 192 pixels; the weights are color differences."""

    def __init__(self, side: int = 24, sharpness: float = 12.0) -> None:
        super().__init__()
        self.specification = DetectorSpec(
            height=192,
            width=320,
            fill=114,
            name="red_and_blue",
            classes=("red", "blue"),
            score_threshold=0.4,
            iou_threshold=0.3,
        )
        self.side, self.sharpness = side, sharpness
        self.colors = nn.Conv2d(3, 2, side, stride=4)
        weight = torch.tensor([[1.0, -0.5, -0.5], [-0.5, -0.5, 1.0]]) / side**2
        self.colors.weight.data = weight[:, :, None, None].expand(2, 3, side, side).clone()
        nn.init.constant_(self.colors.bias, -0.35)  # type: ignore[arg-type]

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        heat = self.colors(images.float() / 255.0)
        scores, labels = (heat * self.sharpness).sigmoid().flatten(2).max(dim=1)
        cells = torch.arange(scores.shape[1], device=scores.device)
        corner = torch.stack([cells % heat.shape[3], cells // heat.shape[3]], dim=-1) * 4.0
        boxes = torch.cat([corner, corner + self.side], dim=-1).expand(scores.shape[0], -1, 4)
        boxes, scores, kept, counts = torch.ops.lensbox.padded_nms(
            boxes, scores, iou_threshold, score_threshold, 500, 30, labels
        )
        labels = labels.gather(1, kept.clamp(min=0))
        return {"boxes": boxes, "scores": scores, "counts": counts, "labels": labels}


class Changed(RedAndBlue):
    """A detector with changed outputs or IoU threshold. TorchScript cannot compile the change."""

    def __init__(self, change: Callable[[Named], Named], iou: float | None = None) -> None:
        super().__init__()
        self.change, self.iou = change, iou

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        iou = iou_threshold if self.iou is None else self.iou
        return self.change(super().detect(images, score_threshold, iou))


class Landmarks(nn.Module):
    """Detect bright squares of a gray canvas of 128 x 96 pixels, with corners, embedding and cell index."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.specification = DetectorSpec(
            height=96,
            width=128,
            channels=1,
            name="landmarks",
            points={"corners": (2, 2)},
            values={"embedding": (width,), "cell": ()},
            score_threshold=0.3,
        )
        generator = torch.Generator().manual_seed(1)
        self.features = nn.Conv2d(1, width, 8, stride=8)
        self.features.weight.data = torch.randn(width, 1, 8, 8, generator=generator)
        assert self.features.bias is not None
        self.features.bias.data = torch.randn(width, generator=generator)

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        gray = images.float() / 255
        scores, cells = torch.nn.functional.avg_pool2d(gray, 8).flatten(1).topk(12)
        corner = torch.stack([cells % 16, cells // 16], dim=-1) * 8.0
        boxes = torch.cat([corner, corner + 8], dim=-1)
        features = self.features(gray).flatten(2).transpose(1, 2)
        return {
            "boxes": boxes,
            "scores": scores,
            "counts": (scores > score_threshold).sum(dim=1),
            "corners": boxes.view(-1, 12, 2, 2),
            "embedding": features.gather(1, cells[:, :, None].expand(-1, -1, features.shape[2])),
            "cell": cells,
        }


# --- detectors that some formats cannot hold ---


class Deciding(Brightest):
    """Branch on a value, which torch.export cannot trace."""

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
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


class AsManySlotsAsNeeded(Brightest):
    """Detect up to four cells, in as many slots as the largest count in the batch; some boxes lie outside."""

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        cells = torch.nn.functional.avg_pool2d(images.float() / 255, 16)
        scores, index = cells.flatten(1).topk(4)
        corner = torch.stack([index % 4, index // 4], dim=-1) * 16.0 - 20.0
        boxes = torch.cat([corner, corner + 18.0], dim=-1)
        counts = (scores > score_threshold).sum(dim=1)
        most = int(counts.max())
        return {"boxes": boxes[:, :most], "scores": scores[:, :most], "counts": counts}


class NeverAlone(Brightest):
    """Fail for a single canvas, which only the export passes."""

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        if images.shape[0] == 1:
            raise ValueError("images must be several")
        return super().detect(images, score_threshold, iou_threshold)
