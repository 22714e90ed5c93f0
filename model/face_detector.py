"""A single-stage, anchor-free face detector for 256x256 grayscale canvases."""

from typing import Final

import torch
from torch import Tensor, nn

from lensbox.model.config import CANVAS_SIZE, STRIDES, DetectorConfig
from lensbox.model.network import (
    Backbone,
    FeaturePyramid,
    Head,
    decode_boxes,
    make_anchors,
    mirror_predictions,
)
from lensbox.model.protocol import DetectorSpec
from lensbox.ops.canvas import check_canvases


class FaceDetector(nn.Module):
    """Detect faces in a gray canvas. Every method is scriptable, so all runtimes share this code.

    The net predicts at A = 64² + 32² + 16² + 8² = 5440 anchors, the cell centres of strides 4, 8, 16 and 32
    in this order, row-major. The buffers `anchor_centers`, float32 [A, 2] (x, y in canvas pixels), and
    `anchor_strides`, float32 [A], hold their positions. All boxes are xyxy in pixels.
    """

    __jit_ignored_attributes__ = ["config", "specification"]  # noqa: RUF012 (TorchScript reads a plain list)

    anchor_centers: Tensor
    anchor_strides: Tensor
    canvas_size: Final = CANVAS_SIZE
    max_candidates: Final = 1000
    max_detections: Final = 256
    mirrored: Final[bool]
    sides: Final[list[int]]

    def __init__(self, config: DetectorConfig | None = None) -> None:
        super().__init__()
        self.specification = DetectorSpec(CANVAS_SIZE, CANVAS_SIZE, channels=1, name="face_detector")
        self.config = config if config is not None else DetectorConfig.named("base")
        self.mirrored = self.config.mirrored
        self.sides = [CANVAS_SIZE // stride for stride in STRIDES]
        self.backbone = Backbone(self.config)
        self.pyramid = FeaturePyramid(self.config)
        width, activation = self.config.pyramid_width, self.config.activation
        heads = [Head(width, dense, activation) for dense in self.config.dense_heads]
        self.head4, self.head8, self.head16, self.head32 = heads
        centers, strides = make_anchors(CANVAS_SIZE, STRIDES)
        self.register_buffer("anchor_centers", centers, persistent=False)
        self.register_buffer("anchor_strides", strides, persistent=False)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the raw predictions of every anchor. Raise ValueError for images of another shape.

        images: [B, 1, 256, 256], uint8 or floating point, gray levels 0..255.
        Returns boxes, float32 [B, A, 4] in canvas pixels, not clipped; logits, float32 [B, A].
        """
        if images.dim() != 4 or list(images.shape[1:]) != [1, self.canvas_size, self.canvas_size]:
            size = self.canvas_size
            raise ValueError(f"images must have the shape [B, 1, {size}, {size}], got {images.shape}")
        # Normalize: mean and standard deviation of the gray levels of photographs, rounded.
        x = (images.float() - 114.0) * (1.0 / 64.0)
        predictions = self._predictions(x)
        if self.mirrored and not self.training:
            mirrored = mirror_predictions(self._predictions(x.flip(3)), self.sides)
            predictions = (predictions + mirrored) / 2
        boxes = decode_boxes(predictions[..., 1:], self.anchor_centers, self.anchor_strides)
        return boxes, predictions[..., 0]

    def _predictions(self, x: Tensor) -> Tensor:
        """Return the heads' outputs, float32 [B, A, 5], for normalized images [B, 1, 256, 256]."""
        p4, p8, p16, p32 = self.pyramid(self.backbone(x))
        return torch.cat([self.head4(p4), self.head8(p8), self.head16(p16), self.head32(p32)], dim=1)

    @torch.jit.export
    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        """Return the faces of each canvas, best first, without gradients. Raise ValueError for bad input.

        A face is kept if its score is above `score_threshold` and its IoU with every better face is at most
        `iou_threshold`; both thresholds lie in 0..1.

        images: uint8 [B, 1, 256, 256].
        Returns boxes, float32 [B, 256, 4] in canvas pixels, clipped to the canvas; scores, float32 [B, 256];
        counts, int32 [B]. Slots from counts[b] on are zero.
        """
        check_canvases(images, [1, self.canvas_size, self.canvas_size], score_threshold, iou_threshold)
        with torch.no_grad():
            all_boxes, logits = self.forward(images)
            boxes, scores, _, counts = torch.ops.lensbox.padded_nms(
                all_boxes,
                logits.sigmoid(),
                iou_threshold,
                score_threshold,
                self.max_candidates,
                self.max_detections,
            )
            boxes = boxes.clamp(0.0, float(self.canvas_size))
            return {"boxes": boxes, "scores": scores, "counts": counts}
