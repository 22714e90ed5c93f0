"""Define a detector that uses the custom op `example::peaks`. Load the library of the op first."""

from collections.abc import Callable
from functools import reduce
from typing import Any

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
        # Sums of whole numbers are exact in float32, so every runtime compares the same neighbours.
        peaks = torch.ops.example.peaks(self.blur(images.float())[:, 0] / 255)
        scores, index = peaks.flatten(1).topk(32)
        center = torch.stack([index % 128, index // 128], dim=-1) + 0.5
        boxes = torch.cat([center - self.side / 2, center + self.side / 2], dim=-1)
        return {"boxes": boxes, "scores": scores, "counts": (scores > score_threshold).sum(dim=1)}

    def onnx_translations(self) -> dict[Any, Callable[..., Any]]:
        """Return the translation of the op, which only the export to ONNX calls."""
        return {torch.ops.example.peaks.default: peaks_in_onnx}


def peaks_in_onnx(heat: Any) -> Any:
    """Return `example::peaks` of a map [B, H, W] in standard operators: compare with each neighbour."""
    from onnxscript import opset18

    op: Any = opset18
    height, width = heat.shape[1:]
    lowest = op.Constant(value_float=float("-inf"))
    padded = op.Pad(heat, op.Constant(value_ints=[0, 1, 1, 0, 1, 1]), lowest)
    hidden = []
    for y, x in ((y, x) for y in (0, 1, 2) for x in (0, 1, 2) if (y, x) != (1, 1)):
        begin, end = (op.Constant(value_ints=ints) for ints in ([y, x], [y + height, x + width]))
        other = op.Slice(padded, begin, end, op.Constant(value_ints=[1, 2]))
        is_before = (y, x) < (1, 1)
        hidden.append(op.GreaterOrEqual(other, heat) if is_before else op.Greater(other, heat))
    return op.Where(reduce(op.Or, hidden), op.Constant(value_float=0.0), heat)
