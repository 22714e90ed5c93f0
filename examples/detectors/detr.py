"""Detectors of transformers without NMS: `lensbox export --model detr:rtdetr`, or dfine, or yolos."""

from typing import Any

import PIL.Image
import torch
from torch import Tensor, nn
from transformers import (
    DFineConfig,
    DFineForObjectDetection,
    HGNetV2Config,
    RTDetrConfig,
    RTDetrForObjectDetection,
    RTDetrImageProcessorPil,
    RTDetrResNetConfig,
    YolosConfig,
    YolosForObjectDetection,
    YolosImageProcessorPil,
)

from lensbox.model import DetectorSpec

STAGES = ["stage2", "stage3", "stage4"]


def rtdetr(size: int = 320, classes: int = 80) -> nn.Module:
    """Return a small RT-DETR with new weights."""
    backbone = RTDetrResNetConfig(
        depths=[1, 1, 1, 1], layer_type="basic", hidden_sizes=[64, 128, 256, 512], out_features=STAGES
    )
    options = _small(backbone, [128, 256, 512], size, classes)
    return Detr(RTDetrForObjectDetection(RTDetrConfig(**options)), size, RTDetrImageProcessorPil())


def dfine(size: int = 320, classes: int = 80) -> nn.Module:
    """Return a small D-FINE with new weights."""
    options = _small(HGNetV2Config(out_features=STAGES), [512, 1024, 2048], size, classes)
    return Detr(DFineForObjectDetection(DFineConfig(**options)), size, RTDetrImageProcessorPil())


def _small(backbone: Any, channels: list[int], size: int, classes: int) -> dict[str, Any]:
    """Return the settings that the two networks with a decoder of queries share."""
    return {
        "backbone_config": backbone,
        "encoder_in_channels": channels,
        "decoder_layers": 2,
        "num_queries": 100,
        "num_labels": classes,
        "anchor_image_size": [size, size],
    }


def yolos(size: int = 320, classes: int = 80) -> nn.Module:
    """Return a small YOLOS, a vision transformer with detection tokens, with new weights."""
    config = YolosConfig(
        hidden_size=192,
        num_hidden_layers=4,
        num_attention_heads=3,
        intermediate_size=768,
        image_size=[size, size],
        num_labels=classes,
    )
    return Detr(YolosForObjectDetection(config), size, YolosImageProcessorPil(), softmax=True)


class Detr(nn.Module):
    """Each query is a box; nothing is suppressed, so the IoU threshold is not used.

    processor: of the library, which resizes with Pillow. Lensbox makes the same pixels and numbers.
    softmax: whether the last class means "no object"; otherwise each class has a separate sigmoid.
    """

    def __init__(self, network: Any, size: int, processor: Any, softmax: bool = False) -> None:
        super().__init__()
        names = [network.config.id2label[index] for index in range(network.config.num_labels)]
        normalises = processor.do_normalize  # if not, levels become numbers from 0 to 1
        self.specification = DetectorSpec(
            height=size,
            width=size,
            fit="stretch",
            filter=PIL.Image.Resampling(processor.resample).name.lower(),
            mean=processor.image_mean if normalises else (0, 0, 0),
            std=processor.image_std if normalises else (1, 1, 1),
            name="detr",
            classes=names,
            jpeg_oversampling=0,  # files are decoded in full, as for the processor
        )
        self.network, self.size, self.softmax = network.eval(), size, softmax

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        found = self.network(images)
        queries, classes = found.logits.shape[1:]
        if self.softmax:
            scores, labels = found.logits.softmax(dim=2)[:, :, :-1].max(dim=2)
            scores, query = scores.sort(dim=1, descending=True)
            labels = labels.gather(1, query)
        else:  # a query may be found as several classes
            scores, pair = found.logits.sigmoid().flatten(1).topk(queries)
            query, labels = pair // classes, pair % classes
        center, extent = (found.pred_boxes * self.size).split(2, dim=2)
        boxes = torch.cat([center - extent / 2, center + extent / 2], dim=2)
        boxes = boxes.gather(1, query[:, :, None].expand(-1, -1, 4))
        counts = (scores > score_threshold).sum(dim=1)
        return {"boxes": boxes, "scores": scores, "counts": counts, "labels": labels}
