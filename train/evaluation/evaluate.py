"""Run a detector over labelled photographs; its figures by size band and by class, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lensbox.common.errors import InputError
from lensbox.model.protocol_check import named
from lensbox.runtime import Artifact
from lensbox.train.evaluation.average_precision import (
    BANDS,
    SCORE_THRESHOLD,
    Evaluation,
    threshold_of_best_f1,
)
from lensbox.train.evaluation.boxes import Array, ImageDetections
from lensbox.train.evaluation.coco_precision import coco_precision
from lensbox.train.evaluation.evaluation_set import EvaluationSet

NMS_IOU = 0.5

# (images uint8 [B, C, H, W], score threshold, IoU threshold) -> boxes, scores, counts; a detector with
# classes returns these and labels by name.
Detect = Callable[[Tensor, float, float], tuple[Tensor, Tensor, Tensor] | Mapping[str, Tensor]]


class ClassFigures(NamedTuple):
    """Figures of a class: average precision by band name, and labelled boxes of at least 8 px."""

    average_precision: dict[str, float]
    boxes: int


@dataclass(frozen=True)
class Figures:
    """The figures of an evaluation.

    Attributes:
        average_precision: by band name, see `BANDS`; with classes the mean over those that have boxes in it.
        images, boxes: photographs, and boxes to find of at least 8 px.
        threshold, f1: score with the best F1 at 8 px and above, over all classes, and that F1.
        coco: by the names of `COCO_FIGURES`; None if not computed.
        classes: by name; empty for a detector without classes.
    """

    average_precision: dict[str, float]
    images: int
    boxes: int
    threshold: float
    f1: float
    coco: dict[str, float] | None = None
    classes: Mapping[str, ClassFigures] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the figures for JSON, with null for bands without boxes."""
        classes = {
            name: {"average_precision": _without_nan(precision), "boxes": boxes}
            for name, (precision, boxes) in self.classes.items()
        }
        return {
            "average_precision": _without_nan(self.average_precision),
            "images": self.images,
            "boxes": self.boxes,
            "best_f1": self.f1,
            "recommended_threshold": None if isnan(self.threshold) else self.threshold,
            "coco": None if self.coco is None else _without_nan(self.coco),
            **({"classes": classes} if classes else {}),
        }

    def lines(self) -> list[str]:
        """Return the lines of a small table."""
        names = {name: name.lstrip("abcdefghijklmnopqrstuvwxyz") for name in self.average_precision}
        head = "  ".join(f"{names[name] + ' px':>9}" for name in self.average_precision)
        title = f"average precision at IoU 0.5, {self.images} images, {self.boxes} boxes of at least 8 px"
        rows = [_row(self.average_precision)]
        if self.classes:
            head += "      boxes"
            rows = [f"{_row(self.average_precision)}  {self.boxes:9}  mean of {len(self.classes)} classes"]
            rows += [
                f"{_row(precision)}  {boxes:9}  {name}" for name, (precision, boxes) in self.classes.items()
            ]
        lines = [title, head, *rows, f"best F1 {self.f1:.3f} at score {self.threshold:.3f}"]
        if self.coco is not None:
            lines.append("COCO, the 100 best detections an image, areas in canvas pixels")
            lines += ["  ".join(f"{name:>9}" for name in self.coco), _row(self.coco)]
        return lines


def _row(values: Mapping[str, float]) -> str:
    return "  ".join(f"{value:9.4f}" for value in values.values())


def _without_nan(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: None if isnan(value) else value for name, value in values.items()}


def detect_all(
    detect: Detect, canvases: Tensor, device: torch.device | str, batch_size: int = 64
) -> list[ImageDetections]:
    """Run `detect` over canvases uint8 [N, C, H, W] in batches, with the thresholds of evaluation.

    Raises:
        InputError: boxes or scores are no floating-point tensors, or not finite.
    """
    found = []
    for start in range(0, len(canvases), batch_size):
        batch = canvases[start : start + batch_size].to(device)
        outputs = named(detect(batch, SCORE_THRESHOLD, NMS_IOU))
        boxes, scores = _floats("boxes", outputs["boxes"]), _floats("scores", outputs["scores"])
        # Without classes, all boxes are of class 0.
        labels = outputs.get("labels", torch.zeros_like(outputs["scores"])).long().cpu().numpy()
        for index, count in enumerate(outputs["counts"].tolist()):
            parts = boxes[index, :count], scores[index, :count], labels[index, :count]
            found.append(ImageDetections(*parts))
    return found


def _floats(name: str, values: Tensor) -> Array:
    if not isinstance(values, Tensor) or not values.is_floating_point():
        kind = values.dtype if isinstance(values, Tensor) else type(values).__name__
        raise InputError(f"{name} of detections must be a floating-point tensor, got {kind}")
    return values.double().cpu().numpy()


def detect_photographs(artifact: Artifact, data: EvaluationSet) -> list[ImageDetections]:
    """Run an artifact with its own preprocessing on photographs. Boxes are in Lensbox's canvas pixels.

    Raises:
        InputError: a photograph that the artifact cannot read.
    """
    contents = (image.read_bytes() for image in data.files)
    results = artifact.detect_files(
        contents,
        score_threshold=SCORE_THRESHOLD,
        iou_threshold=NMS_IOU,
        orientation=data.files[0].orientation,
    )
    found = []
    for result, place, file in zip(results, data.places, data.files, strict=True):
        if isinstance(result, InputError):
            raise InputError(f"{file.name} cannot be scored: {result}") from result
        classes = torch.zeros(len(result.boxes)) if result.labels is None else result.labels
        boxes = place.boxes(result.boxes.numpy())
        found.append(ImageDetections(boxes, result.scores.numpy(), classes.long().numpy()))
    return found


def evaluate(detect: Detect, data: EvaluationSet, device: torch.device | str, coco: bool = False) -> Figures:
    """Return the figures of a detector. coco: COCO's figures too."""
    return score(detect_all(detect, data.canvases, device), data, coco)


def score(detections: Sequence[ImageDetections], data: EvaluationSet, coco: bool = False) -> Figures:
    """Return the figures of detections. coco: COCO's figures too."""
    matched = Evaluation(data.labels, detections)
    curve = matched.curve(*BANDS["all>=8"])
    threshold, f1 = threshold_of_best_f1(curve)
    classes = {
        name: ClassFigures(matched.table(label), matched.curve(*BANDS["all>=8"], label).total)
        for label, name in enumerate(data.classes)
    }
    return Figures(
        average_precision=mean_precision(classes) if classes else matched.table(),
        images=len(data.files),
        boxes=curve.total,
        threshold=threshold,
        f1=f1,
        coco=coco_precision(data.labels, detections, len(classes) or 1) if coco else None,
        classes=classes,
    )


def mean_precision(classes: Mapping[str, ClassFigures]) -> dict[str, float]:
    """Return the mean of each band over the classes that have boxes in it; NaN if no class has."""
    means = {}
    for band in BANDS:
        values = [figures.average_precision[band] for figures in classes.values()]
        values = [value for value in values if not isnan(value)]
        means[band] = sum(values) / len(values) if values else nan
    return means
