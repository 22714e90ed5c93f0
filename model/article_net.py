"""The network of the article from which Lensbox started: linear layers predict the boxes."""

import torch
from torch import Tensor, nn

from lensbox.model.config import CANVAS_SIZE


class ArticleNet(nn.Module):
    """Four stages of convolution, ReLU and pooling, then two linear layers that predict all boxes.

    With the defaults the linear layers are Linear(65536, 16384) and Linear(16384, 1024): more than a billion
    parameters, 4.4 GB. Tests use smaller `channels`, `hidden` and `detections`.
    """

    def __init__(
        self,
        channels: tuple[int, int, int, int] = (32, 64, 128, 256),
        hidden: int = 16384,
        detections: int = 256,
    ) -> None:
        super().__init__()
        self.detections = detections
        stages: list[nn.Module] = []
        for inputs, outputs in zip((1, *channels[:-1]), channels, strict=True):
            stages += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*stages)
        side = CANVAS_SIZE // 2 ** len(channels)
        self.hidden = nn.Linear(channels[-1] * side * side, hidden)
        self.output = nn.Linear(hidden, detections * 4)

    def forward(self, images: Tensor) -> Tensor:
        """Predict boxes. Raise ValueError for images of another shape.

        images: [B, 1, 256, 256], uint8 or floating point, gray levels 0..255.
        Returns [B, detections, 4], xyxy in canvas pixels, in the dtype of the linear layers: bfloat16 under
        autocast, otherwise float32. x1 < x2 and y1 < y2 are not guaranteed.
        """
        if images.dim() != 4 or list(images.shape[1:]) != [1, CANVAS_SIZE, CANVAS_SIZE]:
            raise ValueError(
                f"images must have the shape [B, 1, {CANVAS_SIZE}, {CANVAS_SIZE}], got {list(images.shape)}"
            )
        features = self.features(images.float() * (1.0 / 255.0)).flatten(1)
        boxes: Tensor = self.output(torch.relu(self.hidden(features)))
        return boxes.view(-1, self.detections, 4)
