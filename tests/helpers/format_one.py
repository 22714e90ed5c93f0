"""An artifact of format 1, as Lensbox wrote them before: its methods take one image at a time."""

import io
import json
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 (the name every torch user knows)
from torch import Tensor, nn

import lensbox.ops  # noqa: F401 (registers torch.ops.lensbox)
from lensbox.artifact.seal import sealed_zip
from lensbox.runtime.artifact_file import METADATA_FILE
from lensbox.runtime.torchscript import quiet_torchscript

METHODS = ("preprocess", "detect", "restore", "loss")


class SingleImageDetector(nn.Module):
    """Finds the bright cells of a canvas of 64 x 64, which has 4 x 4 of them. Their means are the scores."""

    @torch.jit.export
    def preprocess(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """uint8 [C, H, W] -> uint8 [1, 64, 64], float32 [6]."""
        if image.dtype != torch.uint8:
            raise ValueError("image must be uint8")
        height, width = image.shape[1], image.shape[2]
        longest = max(height, width)
        new_height = max(1, (2 * height * 64 + longest) // (2 * longest))
        new_width = max(1, (2 * width * 64 + longest) // (2 * longest))
        left, top = (64 - new_width) // 2, (64 - new_height) // 2
        gray = image[0].float()[None, None]
        if image.shape[0] > 1:
            gray = (image[0].float() * 0.299 + image[1] * 0.587 + image[2] * 0.114).round()[None, None]
        size = [new_height, new_width]
        gray = F.interpolate(gray, size, mode="bilinear", align_corners=False, antialias=True)
        canvas = torch.zeros([1, 64, 64], dtype=torch.uint8, device=image.device)
        canvas[:, top : top + new_height, left : left + new_width] = gray[0].round().clamp(0, 255).byte()
        numbers = [
            new_width / width,
            new_height / height,
            float(left),
            float(top),
            float(width),
            float(height),
        ]
        return canvas, torch.tensor(numbers, dtype=torch.float32, device=image.device)

    @torch.jit.export
    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """uint8 [B, 1, 64, 64] -> float32 [B, 16, 4], float32 [B, 16], int32 [B]."""
        if not (score_threshold >= 0.0 and score_threshold <= 1.0):
            raise ValueError(f"score_threshold must be between 0 and 1, got {score_threshold}")
        cells = F.avg_pool2d(images.float(), 16).flatten(1) / 255.0
        scores, order = cells.sort(dim=1, descending=True, stable=True)
        x, y = (order % 4) * 16.0, torch.div(order, 4, rounding_mode="floor") * 16.0
        boxes = torch.stack([x, y, x + 16.0, y + 16.0], dim=-1)
        kept = scores > score_threshold
        counts = kept.sum(dim=1).to(torch.int32)
        return boxes * kept[..., None], scores * kept, counts

    @torch.jit.export
    def restore(self, boxes: Tensor, geometry: Tensor) -> Tensor:
        """float32 [..., 4], with the geometry of one image."""
        if geometry.dim() != 1 or geometry.shape[0] != 6:
            raise ValueError(f"geometry must have the shape [6], got {geometry.shape}")
        scale, offset, size = geometry[0:2].repeat(2), geometry[2:4].repeat(2), geometry[4:6].repeat(2)
        return torch.minimum(((boxes - offset) / scale).clamp(min=0.0), size)

    @torch.jit.export
    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        loss: Tensor = torch.ops.lensbox.masked_giou_loss(predictions, targets)
        return loss


def bright_cells() -> Tensor:
    """Of the self-test: uint8 [1, 32, 64], its cells of clearly different values."""
    levels = torch.tensor([[10, 60, 110, 160], [35, 85, 135, 185]], dtype=torch.uint8)
    return levels.repeat_interleave(16, 0).repeat_interleave(16, 1)[None]


def save_format_one(path: Path) -> Path:
    """Writes the artifact; returns its path."""
    detector = SingleImageDetector().eval()
    image = bright_cells()
    canvas, geometry = detector.preprocess(image)
    boxes, scores, counts = detector.detect(canvas[None], 0.2, 0.5)
    count = int(counts[0])
    pair = torch.tensor([[0.0, 0, 2, 2]]), torch.tensor([[1.0, 0, 3, 2]])
    tolerance = {"boxes": 0.01, "scores": 0.001, "loss": 1e-5}
    metadata = {
        "format_version": 1,
        "name": "bright_cells",
        "lensbox_version": "0.1.0",
        "torch_version": torch.__version__.split("+")[0],
        "weights_sha256": "0" * 64,
        "input": {},
        "output": {},
        "defaults": {"score_threshold": 0.3, "iou_threshold": 0.5},
        "ops": [str(torch.ops.lensbox.masked_giou_loss.default._schema)],
        "methods": list(METHODS),
        "self_test": {
            "image": {"shape": list(image.shape), "pixels": image.flatten().tolist()},
            "score_threshold": 0.2,
            "iou_threshold": 0.5,
            "expected": {
                "boxes": detector.restore(boxes[0, :count], geometry).tolist(),
                "scores": scores[0, :count].tolist(),
            },
            "loss": {
                "predictions": pair[0].tolist(),
                "targets": pair[1].tolist(),
                "expected": float(detector.loss(*pair)),
            },
            "tolerance": {"cpu": tolerance, "cuda": tolerance},
        },
    }
    content = io.BytesIO()
    with quiet_torchscript():
        module = torch.jit.freeze(torch.jit.script(detector), preserved_attrs=list(METHODS))
        torch.jit.save(module, content, _extra_files={METADATA_FILE: json.dumps(metadata)})
    path.write_bytes(sealed_zip(content.getvalue()))
    return path
