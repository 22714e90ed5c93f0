"""Run a detector over labelled photographs and score it by size band and by class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from lensbox.common.errors import InputError
from lensbox.model.protocol_check import named
from lensbox.runtime import Artifact
from lensbox.train.evaluation.average_precision import (
    BANDS,
    SCORE_THRESHOLD,
    Evaluation,
    ImageDetections,
    threshold_of_best_f1,
)
from lensbox.train.evaluation.coco_precision import coco_precision, mean_precision
from lensbox.train.evaluation.evaluation_set import EvaluationSet
from lensbox.train.evaluation.figures import ClassFigures, Figures

NMS_IOU = 0.5

# (images uint8 [B, C, H, W], score threshold, IoU threshold) -> boxes, scores, counts; a detector with
# classes returns these and labels by name.
Detect = Callable[[Tensor, float, float], tuple[Tensor, Tensor, Tensor] | Mapping[str, Tensor]]


def detect_all(
    detect: Detect, canvases: Tensor, device: torch.device | str, batch_size: int = 64
) -> list[ImageDetections]:
    """Run `detect` over canvases uint8 [N, C, H, W] in batches, with the thresholds of evaluation."""
    found = []
    for start in range(0, len(canvases), batch_size):
        batch = canvases[start : start + batch_size].to(device)
        outputs = named(detect(batch, SCORE_THRESHOLD, NMS_IOU))
        boxes = outputs["boxes"].double().cpu().numpy()
        scores = outputs["scores"].double().cpu().numpy()
        labels = outputs["labels"].cpu().numpy() if "labels" in outputs else None
        for index, count in enumerate(outputs["counts"].tolist()):
            classes = None if labels is None else labels[index, :count]
            found.append(ImageDetections(boxes[index, :count], scores[index, :count], classes))
    return found


def detect_photographs(artifact: Artifact, data: EvaluationSet) -> list[ImageDetections]:
    """Run an artifact with its own preprocessing on photographs. Boxes are in Lensbox's canvas pixels.

    Raises:
        InputError: a photograph that the artifact cannot read.
    """
    contents = (image.read_bytes() for image in data.files)
    results = artifact.detect_files(
        contents, score_threshold=SCORE_THRESHOLD, iou_threshold=NMS_IOU, orientation="stored"
    )
    found = []
    for result, place, name in zip(results, data.places, data.names, strict=True):
        if isinstance(result, InputError):
            raise InputError(f"{name} cannot be scored: {result}") from result
        classes = None if result.labels is None else result.labels.numpy()
        boxes = place.boxes(result.boxes.numpy())
        found.append(ImageDetections(boxes, result.scores.double().numpy(), classes))
    return found


def evaluate(
    detect: Detect, data: EvaluationSet, device: torch.device | str, coco: bool = False
) -> tuple[Figures, Evaluation]:
    """Return the figures of a detector, and its detections matched with the labels.

    Args:
        coco: COCO's figures too.
    """
    return score(detect_all(detect, data.canvases, device), data, coco)


def score(
    detections: Sequence[ImageDetections], data: EvaluationSet, coco: bool = False
) -> tuple[Figures, Evaluation]:
    """Return the result of `evaluate` for detections that are known already."""
    matched = Evaluation(data.labels, detections)
    curve = matched.curve(*BANDS["all>=8"])
    threshold, f1 = threshold_of_best_f1(curve)
    by_class = coco_precision(data.labels, matched.detections, len(data.classes) or 1) if coco else None
    classes = {
        name: ClassFigures(
            matched.table(label),
            matched.curve(*BANDS["all>=8"], label).total,
            by_class[label] if by_class else None,
        )
        for label, name in enumerate(data.classes)
    }
    precision = (
        mean_precision([of_class.average_precision for of_class in classes.values()])
        if classes
        else matched.table()
    )
    coco_means = mean_precision(by_class) if by_class else None
    figures = Figures(precision, len(data.names), curve.total, threshold, f1, coco_means, classes)
    return figures, matched
