"""The way to boxes before `letterbox` was an op, kept as a peer of the one that took its place.

A JPEG file was decoded in full and in color, copied into planes, made gray in float32, and resized by
`F.interpolate`; photographs were looked at one after another, lying as they are stored. This is that code,
with what decided its time and without the messages for bad input.
"""

import io

import numpy as np
import PIL.Image
import torch
import torch.nn.functional as F  # noqa: N812 (the name every torch user knows)
from torch import Tensor

from lensbox.runtime.artifact import Artifact
from lensbox.runtime.detection import Detections
from lensbox.runtime.torchscript import quiet_torchscript

_TILE_PIXELS = 1 << 19


def read_image(file: bytes) -> Tensor:
    """A gray or RGB file as uint8 [C, H, W], the channels one after another in memory."""
    with PIL.Image.open(io.BytesIO(file)) as image:
        pixels = torch.empty((len(image.mode), image.height, image.width), dtype=torch.uint8)
        planes = pixels.numpy()
        rows = max(1, _TILE_PIXELS // image.width)
        for top in range(0, image.height, rows):
            tile = image.crop((0, top, image.width, min(top + rows, image.height)))
            for plane, band in zip(planes, image.mode, strict=True):
                values = np.frombuffer(tile.tobytes("raw", band), np.uint8)
                plane[top : top + rows] = values.reshape(tile.height, tile.width)
    return pixels


def letterbox(image: Tensor, canvas_size: int) -> tuple[Tensor, Tensor]:
    """uint8 [C, H, W] -> the canvas, uint8 [1, canvas_size, canvas_size], and its geometry, float32 [6]."""
    height, width = image.shape[1], image.shape[2]
    longest = max(height, width)
    new_height = max(1, (2 * height * canvas_size + longest) // (2 * longest))
    new_width = max(1, (2 * width * canvas_size + longest) // (2 * longest))
    left = (canvas_size - new_width) // 2
    top = (canvas_size - new_height) // 2

    gray = _luma(image)[None, None]
    gray = F.interpolate(gray, [new_height, new_width], mode="bilinear", align_corners=False, antialias=True)

    canvas = torch.zeros([1, canvas_size, canvas_size], dtype=torch.uint8, device=image.device)
    canvas[:, top : top + new_height, left : left + new_width] = gray[0].round().clamp(0, 255).to(torch.uint8)
    geometry = torch.tensor(
        [new_width / width, new_height / height, float(left), float(top), float(width), float(height)],
        dtype=torch.float32,
        device=image.device,
    )
    return canvas, geometry


def restore_boxes(boxes: Tensor, geometry: Tensor) -> Tensor:
    """float32 [n, 4] in canvas pixels -> in pixels of the image, clipped to it. geometry: float32 [6]."""
    scale, offset, size = geometry[0:2].repeat(2), geometry[2:4].repeat(2), geometry[4:6].repeat(2)
    return torch.minimum(((boxes - offset) / scale).clamp(min=0.0), size)


def _luma(image: Tensor) -> Tensor:
    if image.shape[0] == 1:
        return image[0].float()
    return (image[0].float() * 0.299).add_(image[1], alpha=0.587).add_(image[2], alpha=0.114).round_()


class PreviousCode:
    """Runs it, in TorchScript as it was, with the network of an artifact that has a square gray canvas."""

    def __init__(self, artifact: Artifact, canvas_size: int) -> None:
        with quiet_torchscript():
            self._letterbox = torch.jit.script(letterbox)
            self._restore = torch.jit.script(restore_boxes)
        self._artifact = artifact
        self._canvas_size = canvas_size

    def letterbox(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """As the function of this name, of an image on any device."""
        canvas, geometry = self._letterbox(image.to(self._artifact.device), self._canvas_size)
        return canvas, geometry

    def detect(self, canvas: Tensor) -> tuple[Tensor, Tensor]:
        """uint8 [1, size, size] -> boxes in canvas pixels, float32 [n, 4], and scores, float32 [n]."""
        defaults = self._artifact.metadata
        boxes, scores, counts = self._artifact.module.detect(
            canvas[None], defaults.score_threshold, defaults.iou_threshold
        )
        count = int(counts[0])
        return boxes[0, :count], scores[0, :count]

    def restore(self, boxes: Tensor, geometry: Tensor) -> Tensor:
        """As `restore_boxes`; the result is on the CPU."""
        restored: Tensor = self._restore(boxes, geometry)
        return restored.cpu()

    def detect_image(self, image: Tensor) -> Detections:
        """The faces of one image."""
        canvas, geometry = self.letterbox(image)
        boxes, scores = self.detect(canvas)
        return Detections(self.restore(boxes, geometry), scores.cpu())
