"""RT-DETR of transformers, which needs no suppression: `lensbox export --model rtdetr:rtdetr`."""

import torch
from torch import Tensor, nn
from transformers import RTDetrConfig, RTDetrForObjectDetection, RTDetrResNetConfig

from lensbox.model import DetectorSpec


def rtdetr(size: int = 320, classes: int = 80) -> nn.Module:
    """Return a small RT-DETR with new weights."""
    backbone = RTDetrResNetConfig(depths=[1, 1, 1, 1], layer_type="basic", hidden_sizes=[64, 128, 256, 512])
    backbone.out_features = ["stage2", "stage3", "stage4"]
    config = RTDetrConfig(
        backbone_config=backbone,
        encoder_in_channels=[128, 256, 512],
        decoder_layers=2,
        num_queries=100,
        num_labels=classes,
        anchor_image_size=[size, size],
    )
    return RtDetr(RTDetrForObjectDetection(config).eval(), size)


class RtDetr(nn.Module):
    """Each query is a box; nothing is suppressed, so the IoU threshold is not used."""

    def __init__(self, network: RTDetrForObjectDetection, size: int) -> None:
        super().__init__()
        names = [network.config.id2label[index] for index in range(network.config.num_labels)]
        self.specification = DetectorSpec(height=size, width=size, name="rtdetr", classes=names)
        self.network, self.size = network, size

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        found = self.network(images.float() / 255)
        scores, labels = found.logits.sigmoid().max(dim=2)
        scores, order = scores.sort(dim=1, descending=True)
        center, extent = (found.pred_boxes * self.size).split(2, dim=2)
        boxes = torch.cat([center - extent / 2, center + extent / 2], dim=2)
        return {
            "boxes": boxes.gather(1, order[:, :, None].expand(-1, -1, 4)),
            "scores": scores,
            "counts": (scores > score_threshold).sum(dim=1),
            "labels": labels.gather(1, order),
        }
