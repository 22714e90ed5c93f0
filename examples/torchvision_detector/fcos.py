"""torchvision's FCOS and RetinaNet: `lensbox export --model fcos:fcos` and `--model fcos:retinanet`."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models.detection import fcos_resnet50_fpn, retinanet_resnet50_fpn
from torchvision.models.detection.image_list import ImageList

import lensbox.ops  # noqa: F401 (registers torch.ops.lensbox)
from lensbox.model import DetectorSpec

CANDIDATES = 1000  # the most pairs that go to NMS


def fcos(size: int = 256, classes: int = 91) -> nn.Module:
    """Return FCOS with new weights for a square canvas."""
    network = fcos_resnet50_fpn(weights=None, weights_backbone=None, num_classes=classes)
    return make_dense(network, network.box_coder.decode, size, classes)


def retinanet(size: int = 256, classes: int = 91) -> nn.Module:
    """Return RetinaNet with new weights for a square canvas."""
    network = retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=classes)
    return make_dense(network, network.box_coder.decode_single, size, classes)


def make_dense(
    network: nn.Module, decode: Callable[[Tensor, Tensor], Tensor], size: int, classes: int
) -> nn.Module:
    """Return a detector. decode: makes boxes [N, 4] of codes [N, 4] and anchors [N, 4]."""
    detector = Dense(network, (size, size), "dense", [f"class {index}" for index in range(classes)])
    detector.decode = decode
    return detector


class Dense(nn.Module):
    """A network of torchvision with anchors: the best pairs of an anchor and a class go to NMS.

    Computes what the network does after its resizing of images, for whole batches and without loops.
    size: height and width of the canvas.
    """

    def __init__(self, network: Any, size: tuple[int, int], name: str, classes: Sequence[str]) -> None:
        super().__init__()
        height, width = size
        self.specification = DetectorSpec(
            height=height,
            width=width,
            mean=network.transform.image_mean,
            std=network.transform.image_std,
            name=name,
            classes=classes,
            iou_threshold=network.nms_thresh,
        )
        self.backbone, self.head = network.eval().backbone, network.head
        images = torch.zeros(1, 3, height, width)
        with torch.no_grad():
            features = list(network.backbone(images).values())
            (anchors,) = network.anchor_generator(ImageList(images, [size]), features)
        self.candidates = min(CANDIDATES, len(anchors) * len(classes))
        self.detections = network.detections_per_img
        self.register_buffer("anchors", anchors)
        self.register_buffer("limits", torch.tensor([width, height, width, height]).float())

    def scores(self, raw: dict[str, Tensor]) -> Tensor:
        """Return scores [B, A, classes] of the head's outputs."""
        scores = raw["cls_logits"].sigmoid()
        return (scores * raw["bbox_ctrness"].sigmoid()).sqrt() if "bbox_ctrness" in raw else scores

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        features = self.backbone(images)
        raw = self.head(list(features.values()))
        scores = self.scores(raw)
        classes = scores.shape[2]
        scores, pair = scores.flatten(1).topk(self.candidates)
        rows = (pair // classes)[:, :, None].expand(-1, -1, 4)
        anchors = self.anchors.expand(images.shape[0], -1, -1).gather(1, rows)
        codes = raw["bbox_regression"].gather(1, rows)
        boxes = self.decode(codes.flatten(0, 1), anchors.flatten(0, 1)).view(codes.shape)
        labels = pair % classes
        boxes, scores, kept, counts = torch.ops.lensbox.padded_nms(
            boxes.clamp(min=0).minimum(self.limits),
            scores,
            iou_threshold=iou_threshold,
            score_threshold=score_threshold,
            max_candidates=self.candidates,
            max_detections=self.detections,
            categories=labels,
        )
        labels = labels.gather(1, kept.clamp(min=0))
        return {"boxes": boxes, "scores": scores, "counts": counts, "labels": labels}
