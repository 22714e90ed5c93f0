"""The figures of a detector by size band and by class, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from math import isnan, nan
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass

from lensbox.train.evaluation.average_precision import (
    BANDS,
    Evaluation,
    ImageDetections,
    threshold_of_best_f1,
)
from lensbox.train.evaluation.coco_precision import coco_precision
from lensbox.train.evaluation.evaluation_set import EvaluationSet

_NUMBERS = ConfigDict(ser_json_inf_nan="null")  # JSON has no NaN


@dataclass(frozen=True, config=_NUMBERS)
class ClassFigures:
    """Figures of a class: average precision by band name, and labelled boxes of at least 8 px."""

    average_precision: dict[str, float]
    boxes: int


@dataclass(frozen=True, config=_NUMBERS)
class Figures:
    """The figures of an evaluation.

    Attributes:
        average_precision: by band name, see `BANDS`; with classes the mean over those that have boxes in it.
        images, boxes: photographs, and boxes to find of at least 8 px.
        recommended_threshold, best_f1: score with the best F1 at 8 px and above, of all classes; that F1.
        coco: by the names of `COCO_FIGURES`; None if not computed.
        classes: by name; empty for a detector without classes.
    """

    average_precision: dict[str, float]
    images: int
    boxes: int
    recommended_threshold: float
    best_f1: float
    coco: dict[str, float] | None = None
    classes: dict[str, ClassFigures] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the figures for JSON, with null for bands without boxes."""
        figures: dict[str, Any] = json.loads(TypeAdapter(Figures).dump_json(self))
        return figures

    def lines(self) -> list[str]:
        """Return the lines of a small table."""
        names = [name.lstrip("abcdefghijklmnopqrstuvwxyz") for name in self.average_precision]
        head = "  ".join(f"{name + ' px':>9}" for name in names)
        title = f"average precision at IoU 0.5, {self.images} images, {self.boxes} boxes of at least 8 px"
        rows = [_row(self.average_precision)]
        if self.classes:
            head += "      boxes"
            rows = [f"{_row(self.average_precision)}  {self.boxes:9}  mean of {len(self.classes)} classes"]
            rows += [
                f"{_row(one.average_precision)}  {one.boxes:9}  {name}" for name, one in self.classes.items()
            ]
        lines = [title, head, *rows, f"best F1 {self.best_f1:.3f} at score {self.recommended_threshold:.3f}"]
        if self.coco is not None:
            lines.append("COCO, the 100 best detections an image, areas in canvas pixels")
            lines += ["  ".join(f"{name:>9}" for name in self.coco), _row(self.coco)]
        return lines


def _row(values: Mapping[str, float]) -> str:
    return "  ".join(f"{value:9.4f}" for value in values.values())


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
        recommended_threshold=threshold,
        best_f1=f1,
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
