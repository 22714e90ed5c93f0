"""Define a detector that uses the custom op `example::peaks`. Load the library of the op first."""

import torch
from torch import Tensor, nn

from lensbox.model import DetectorSpec


class Blobs(nn.Module):
    """Bright blobs of some 12 pixels on a gray canvas of 128 x 96 pixels: peaks of the blurred picture."""

    def __init__(self, side: int = 13) -> None:
        super().__init__()
        self.specification = DetectorSpec(height=96, width=128, channels=1, name="blobs")
        self.side = side
        self.blur = nn.AvgPool2d(side, stride=1, padding=side // 2)

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        peaks = torch.ops.example.peaks(self.blur(images.float() / 255)[:, 0])
        scores, index = peaks.flatten(1).topk(32)
        center = torch.stack([index % 128, index // 128], dim=-1) + 0.5
        boxes = torch.cat([center - self.side / 2, center + self.side / 2], dim=-1)
        return {"boxes": boxes, "scores": scores, "counts": (scores > score_threshold).sum(dim=1)}
