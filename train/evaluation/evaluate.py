"""Runs a detector over labelled photographs and scores it by size band."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lensbox.errors import InputError
from lensbox.model.config import CANVAS_SIZE
from lensbox.ops import letterbox
from lensbox.train.data.image_store import decode_image
from lensbox.train.data.wider_face import LabelledImage, Problem
from lensbox.train.evaluation.average_precision import (
    BANDS,
    Evaluation,
    ImageDetections,
    ImageLabels,
    threshold_of_best_f1,
)
from lensbox.train.evaluation.coco_precision import coco_lines, coco_precision

SCORE_THRESHOLD = 0.02
NMS_IOU = 0.5

# (images uint8 [B, 1, 256, 256], score threshold, IoU threshold) -> boxes, scores, counts
Detect = Callable[[Tensor, float, float], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class EvaluationSet:
    """Letterboxed photographs with their labels.

    Attributes:
        canvases: uint8 [N, 1, 256, 256], on the CPU.
        labels: boxes in canvas pixels, one entry a photograph.
        names: of the photographs. problems: what could not be read.
    """

    canvases: Tensor
    labels: list[ImageLabels]
    names: list[str]
    problems: list[Problem]


@dataclass(frozen=True)
class Figures:
    """What an evaluation found.

    Attributes:
        average_precision: by band name, see `BANDS`.
        images, boxes: photographs, and boxes to find of at least 8 px.
        threshold, f1: score with the best F1 at 8 px and above, and that F1.
        coco: by the names of `COCO_FIGURES`; None if not asked for.
    """

    average_precision: dict[str, float]
    images: int
    boxes: int
    threshold: float
    f1: float
    coco: dict[str, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON can hold them: null where there is nothing to score, for JSON has no NaN."""
        return {
            "average_precision": _without_nan(self.average_precision),
            "images": self.images,
            "boxes": self.boxes,
            "best_f1": self.f1,
            "recommended_threshold": None if isnan(self.threshold) else self.threshold,
            "coco": None if self.coco is None else _without_nan(self.coco),
        }

    def lines(self) -> list[str]:
        """A small table for people."""
        names = {name: name.lstrip("abcdefghijklmnopqrstuvwxyz") for name in self.average_precision}
        head = "  ".join(f"{names[name] + ' px':>9}" for name in self.average_precision)
        body = "  ".join(f"{value:9.4f}" for value in self.average_precision.values())
        return [
            f"average precision at IoU 0.5, {self.images} images, {self.boxes} boxes of at least 8 px",
            head,
            body,
            f"best F1 {self.f1:.3f} at score {self.threshold:.3f}",
            *(coco_lines(self.coco) if self.coco is not None else []),
        ]


def _without_nan(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: None if isnan(value) else value for name, value in values.items()}


def load_evaluation_set(images: Sequence[LabelledImage], workers: int = 8) -> EvaluationSet:
    """Decodes and letterboxes photographs exactly as `FaceDetector.preprocess` does.

    Raises:
        InputError: no photograph can be read.
    """

    def prepare(image: LabelledImage) -> tuple[Tensor, ImageLabels] | Problem:
        try:
            decoded = decode_image(image, side=1 << 30)
        except OSError as error:
            return Problem(image.origin, str(error))
        pixels = torch.from_numpy(decoded.pixels.copy())[None]
        canvases, geometry = letterbox([pixels], CANVAS_SIZE, CANVAS_SIZE)
        scale, offset = (geometry[0, i : i + 2].repeat(2).double().numpy() for i in (0, 2))
        return canvases[0], ImageLabels(decoded.boxes.astype(np.float64) * scale + offset, decoded.ignore)

    canvases, labels, names, problems = [], [], [], []
    with ThreadPoolExecutor(max(1, workers)) as pool:
        for image, prepared in zip(images, pool.map(prepare, images), strict=True):
            if isinstance(prepared, Problem):
                problems.append(prepared)
                continue
            canvases.append(prepared[0])
            labels.append(prepared[1])
            names.append(image.name)
    if not canvases:
        raise InputError(f"evaluation data must hold at least one readable image, got none of {len(images)}")
    return EvaluationSet(torch.stack(canvases), labels, names, problems)


def detect_all(
    detect: Detect, canvases: Tensor, device: torch.device | str, batch_size: int = 64
) -> list[ImageDetections]:
    """Runs `detect` over canvases uint8 [N, 1, 256, 256] in batches, with the thresholds of evaluation."""
    found = []
    for start in range(0, len(canvases), batch_size):
        batch = canvases[start : start + batch_size].to(device)
        boxes, scores, counts = detect(batch, SCORE_THRESHOLD, NMS_IOU)
        boxes_array = boxes.double().cpu().numpy()
        scores_array = scores.double().cpu().numpy()
        for index, count in enumerate(counts.tolist()):
            found.append(ImageDetections(boxes_array[index, :count], scores_array[index, :count]))
    return found


def evaluate(
    detect: Detect, data: EvaluationSet, device: torch.device | str, coco: bool = False
) -> tuple[Figures, Evaluation]:
    """Returns the figures of a detector, and the matching they come from.

    Args:
        coco: COCO's figures too.

    Raises:
        CocoMissingError: `coco` without pycocotools.
    """
    matched = Evaluation(data.labels, detect_all(detect, data.canvases, device))
    curve = matched.curve(*BANDS["all>=8"])
    threshold, f1 = threshold_of_best_f1(curve)
    figures = coco_precision(data.labels, matched.detections) if coco else None
    return Figures(matched.table(), len(data.names), curve.total, threshold, f1, figures), matched
