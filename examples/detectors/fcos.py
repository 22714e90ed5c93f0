"""torchvision's FCOS and RetinaNet: `lensbox export --model fcos:fcos` and `--model fcos:retinanet`."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torchvision.models.detection import FCOS, RetinaNet, fcos_resnet50_fpn, retinanet_resnet50_fpn
from torchvision.models.detection.image_list import ImageList

import lensbox.ops  # noqa: F401 (registers torch.ops.lensbox)
from lensbox.model import DetectorSpec


def fcos(size: int = 256, classes: int = 91) -> nn.Module:
    """Return FCOS with new weights for a square canvas."""
    network = fcos_resnet50_fpn(weights=None, weights_backbone=None, num_classes=classes)
    return Dense(network, network.box_coder.decode, size, classes)


def retinanet(size: int = 256, classes: int = 91) -> nn.Module:
    """Return RetinaNet with new weights for a square canvas."""
    network = retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=classes)
    return Dense(network, network.box_coder.decode_single, size, classes)


class Dense(nn.Module):
    """A network with anchors: the best pairs of an anchor and a class go to NMS.

    decode: makes boxes [N, 4] of codes [N, 4] and anchors [N, 4].
    """

    def __init__(
        self, network: FCOS | RetinaNet, decode: Callable[[Tensor, Tensor], Tensor], size: int, classes: int
    ) -> None:
        super().__init__()
        names = [f"class {index}" for index in range(classes)]
        transform = network.transform
        self.specification = DetectorSpec(
            height=size,
            width=size,
            mean=transform.image_mean,
            std=transform.image_std,
            name="dense",
            classes=names,
        )
        self.size, self.decode = size, decode
        self.backbone, self.head = network.eval().backbone, network.head
        images = torch.zeros(1, 3, size, size)
        with torch.no_grad():
            features = list(network.backbone(images).values())
            (anchors,) = network.anchor_generator(ImageList(images, [(size, size)]), features)
        self.candidates, self.detections = min(1000, len(anchors) * classes), network.detections_per_img
        self.register_buffer("anchors", anchors)

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        features = self.backbone(images)
        raw = self.head(list(features.values()))
        scores = raw["cls_logits"].sigmoid()
        if "bbox_ctrness" in raw:
            scores = (scores * raw["bbox_ctrness"].sigmoid()).sqrt()
        classes = scores.shape[2]
        scores, pair = scores.flatten(1).topk(self.candidates)
        rows = (pair // classes)[:, :, None].expand(-1, -1, 4)
        anchors = self.anchors.expand(images.shape[0], -1, -1).gather(1, rows)
        codes = raw["bbox_regression"].gather(1, rows)
        boxes = self.decode(codes.flatten(0, 1), anchors.flatten(0, 1)).view(codes.shape).clamp(0, self.size)
        labels = pair % classes
        boxes, scores, kept, counts = torch.ops.lensbox.padded_nms(
            boxes,
            scores,
            iou_threshold=iou_threshold,
            score_threshold=score_threshold,
            max_candidates=self.candidates,
            max_detections=self.detections,
            categories=labels,
        )
        labels = labels.gather(1, kept.clamp(min=0))
        return {"boxes": boxes, "scores": scores, "counts": counts, "labels": labels}
