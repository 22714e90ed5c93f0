"""torchvision's SSDlite as a detector: its network, and `lensbox::padded_nms` in place of its NMS."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torchvision.models.detection import SSDLite320_MobileNet_V3_Large_Weights, ssdlite320_mobilenet_v3_large
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.ssd import SSD

import lensbox.ops  # noqa: F401 (registers torch.ops.lensbox)
from lensbox.model import DetectorSpec

CATEGORIES = SSDLite320_MobileNet_V3_Large_Weights.COCO_V1.meta["categories"]  # 0 is the background


def ssdlite(weights: str | Path | None = None) -> nn.Module:
    """Return the detector of COCO's 80 classes, for `--model`; weights as for `make_network`."""
    return SsdLite(make_network(weights), CATEGORIES)


def make_network(weights: str | Path | None = None) -> SSD:
    """Return torchvision's detector, in eval mode.

    weights: file such as torchvision's ssdlite320_mobilenet_v3_large_coco-a79551df.pth; None: random ones.
    """
    network = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=len(CATEGORIES))
    if weights is None:
        fill_with_noise(network)
    else:
        network.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return network.eval()


class SsdLite(nn.Module):
    """Compute torchvision's SSD after its resizing of images, for whole batches and without loops.

    candidates: number of pairs of a box and a class, those with the best scores, that go to NMS.
    """

    def __init__(self, network: SSD, categories: Sequence[str], candidates: int = 1000) -> None:
        super().__init__()
        height, width = network.transform.fixed_size
        # COCO skips some of its numbers: these are no classes, and neither is the background.
        named = [number for number, name in enumerate(categories) if number > 0 and name != "N/A"]
        self.specification = DetectorSpec(
            height=height,
            width=width,
            mean=network.transform.image_mean,
            std=network.transform.image_std,
            name="ssdlite320_mobilenet_v3_large",
            classes=[categories[number] for number in named],
            iou_threshold=network.nms_thresh,
        )
        self.backbone, self.head = network.backbone, network.head
        self.candidates, self.detections = candidates, network.detections_per_img
        self.largest_exponent = network.box_coder.bbox_xform_clip
        self.register_buffer("named", torch.tensor(named))
        self.register_buffer("anchors", anchors_of(network, height, width))
        self.register_buffer("limits", torch.tensor([width, height, width, height]).float())

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        features = self.backbone(images)
        raw = self.head(list(features.values()))
        scores = raw["cls_logits"].softmax(dim=2)[:, :, self.named].flatten(1)
        scores, pair = scores.topk(self.candidates)
        box = pair // len(self.named)
        boxes = self.decode(raw["bbox_regression"]).gather(1, box[:, :, None].expand(-1, -1, 4))
        labels = pair % len(self.named)
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

    def decode(self, codes: Tensor) -> Tensor:
        """Return boxes [B, A, 4] of SSD's codes, center and size relative to the anchors, times 10 and 5."""
        size = self.anchors[:, 2:] - self.anchors[:, :2]
        center = codes[:, :, :2] / 10 * size + (self.anchors[:, :2] + 0.5 * size)
        half = 0.5 * (torch.exp((codes[:, :, 2:] / 5).clamp(max=self.largest_exponent)) * size)
        return torch.cat([center - half, center + half], dim=2).clamp(min=0).minimum(self.limits)


def anchors_of(network: SSD, height: int, width: int) -> Tensor:
    """Return the anchors [A, 4] of images of this size."""
    images = torch.zeros(1, 3, height, width)
    with torch.no_grad():
        features = list(network.backbone(images).values())
        return network.anchor_generator(ImageList(images, [(height, width)]), features)[0]


@torch.no_grad()
def fill_with_noise(network: SSD, seed: int = 0) -> None:
    """Set random weights whose detections differ between pictures and have clear scores."""
    generator = torch.Generator().manual_seed(seed)
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            layer.weight.normal_(0, (2 / layer.weight[0].numel()) ** 0.5, generator=generator)
    network.eval()
    coarse = torch.rand(8, 3, 12, 12, generator=generator)
    pictures = nn.functional.interpolate(coarse, network.transform.fixed_size, mode="bilinear")
    features = network.backbone(2 * pictures - 1).values()
    for head, spread in ((network.head.classification_head, 3.0), (network.head.regression_head, 0.2)):
        for block, feature in zip(head.module_list, features, strict=True):
            output, last = block(feature), block[-1]
            last.weight *= spread / output.std()
            last.bias = nn.Parameter(-output.mean(dim=(0, 2, 3)) * spread / output.std())
