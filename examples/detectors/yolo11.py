"""ultralytics' YOLO11: `lensbox export --model yolo11:yolo11`. The package is AGPL: install it yourself."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from ultralytics.nn.tasks import DetectionModel
from ultralytics.utils import ROOT, YAML

import lensbox.ops  # noqa: F401 (registers torch.ops.lensbox)
from lensbox.model import DetectorSpec


def yolo11(
    names: Sequence[str] | None = None,
    classes: int | None = None,
    size: int = 640,
    variant: str = "yolo11n.yaml",
) -> nn.Module:
    """Return YOLO11 with new weights, for `lensbox export --weights` to fill.

    names: of the classes; by default COCO's, or numbers if `classes` is another number than COCO's.
    """
    if names is None:
        coco = list(YAML.load(ROOT / "cfg" / "datasets" / "coco.yaml")["names"].values())
        names = coco if classes in (None, len(coco)) else [str(index) for index in range(classes)]
    if classes not in (None, len(names)):
        raise ValueError(f"classes must be the number of names, {len(names)}, got {classes}")
    return Yolo11(DetectionModel(variant, nc=len(names), verbose=False).eval(), size, names)


class Yolo11(nn.Module):
    def __init__(self, network: DetectionModel, size: int, names: Sequence[str]) -> None:
        super().__init__()
        numbers = {"mean": (0, 0, 0), "std": (1, 1, 1)}  # from 0 to 1
        self.specification = DetectorSpec(
            height=size,
            width=size,
            fill=114,
            fit="ultralytics",
            filter="opencv_linear",
            name="yolo11",
            classes=names,
            jpeg_oversampling=0,
            **numbers,
        )
        self.network = network
        head = network.model[-1]
        head.export = True  # the decoded predictions alone
        head.dynamic = True  # no anchors kept from the batch before
        head.end2end = False  # of YOLO26's two heads, the one for NMS

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        raw = self.network(images).transpose(1, 2)  # [B, A, 4 + classes]
        center, half = raw[:, :, :2], raw[:, :, 2:4] / 2
        scores, labels = raw[:, :, 4:].max(dim=2)
        boxes, scores, kept, counts = torch.ops.lensbox.padded_nms(
            torch.cat([center - half, center + half], dim=2),
            scores,
            iou_threshold=iou_threshold,
            score_threshold=score_threshold,
            max_candidates=1000,
            max_detections=300,
            categories=labels,
        )
        labels = labels.gather(1, kept.clamp(min=0))
        return {"boxes": boxes, "scores": scores, "counts": counts, "labels": labels}
