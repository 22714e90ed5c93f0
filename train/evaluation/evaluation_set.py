"""Labelled photographs, fitted to the canvas of the detector that is to be scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lensbox.common.canvas import Canvas
from lensbox.common.errors import InputError
from lensbox.model.config import CANVAS_SIZE
from lensbox.ops.canvas import fit_to_canvases, place_boxes
from lensbox.train.data.image_store import Decoded, decode_all
from lensbox.train.data.labels import LabelledImage
from lensbox.train.evaluation.average_precision import ImageLabels

_WORKERS = 8  # threads that decode
FACE_CANVAS = Canvas(CANVAS_SIZE, CANVAS_SIZE)


@dataclass(frozen=True)
class EvaluationSet:
    """Letterboxed photographs with their labels.

    Attributes:
        canvas: to which the photographs are fitted.
        canvases: uint8 [N, C, H, W], on the CPU.
        labels: boxes in canvas pixels, one entry a photograph.
        files: of the photographs.
        geometry: float64 [N, 6], of each photograph on its canvas, see `lensbox.ops.canvas`.
        classes: names by label; empty for a detector of one kind.
        problems: unreadable photographs, and boxes of other classes.
    """

    canvas: Canvas
    canvases: Tensor
    labels: Sequence[ImageLabels]
    files: Sequence[LabelledImage]
    geometry: Tensor
    classes: tuple[str, ...]
    problems: list[str]


def load_evaluation_set(
    images: Sequence[LabelledImage], canvas: Canvas = FACE_CANVAS, classes: Sequence[str] = ()
) -> EvaluationSet:
    """Decode and fit photographs exactly as artifacts without a `preprocess` of their own do.

    classes: of the detector. Boxes of other classes are left out; without classes, all boxes count.

    Raises:
        InputError: no photograph can be read, or no box has one of the classes.
    """

    def prepare(image: LabelledImage, decoded: Decoded) -> tuple[Tensor, ImageLabels, Tensor]:
        pixels = torch.from_numpy(np.atleast_3d(decoded.pixels).copy()).permute(2, 0, 1)
        canvases, geometry = fit_to_canvases([pixels], None, *canvas.as_tuple)
        boxes = place_boxes(torch.from_numpy(decoded.boxes).double(), geometry[0].double()).numpy()
        numbers = np.array([known.get(name, -1) if classes else 0 for name in image.classes], np.int64)
        kept = numbers >= 0
        labels = ImageLabels(boxes[kept], decoded.ignore[kept], numbers[kept])
        return canvases[0], labels, geometry[0].double()

    known = {name: label for label, name in enumerate(classes)}
    problems: list[str] = []
    mode: Any = "L" if canvas.channels == 1 else "RGB"
    files, ready = zip(*decode_all(images, prepare, _WORKERS, problems, 1 << 30, mode), strict=True)
    canvases, labels, geometry = zip(*ready, strict=True)
    if classes:
        problems += _other_classes(images, classes)
        if not any(len(each.boxes) for each in labels):
            raise InputError(
                f"evaluation data must hold boxes of the detector's classes, {', '.join(classes)}, got none: "
                "a row names its class after ten numbers"
            )
    places = torch.stack(geometry)
    return EvaluationSet(canvas, torch.stack(canvases), labels, files, places, tuple(classes), problems)


def _other_classes(images: Sequence[LabelledImage], classes: Sequence[str]) -> list[str]:
    """Return a line for each class that the detector lacks, at the first of its boxes."""
    names = [(name, image.origin) for image in images for name in image.classes if name not in classes]
    counts, first = Counter(name for name, _ in names), dict(reversed(names))
    return [
        f"{first[name]}: {count} boxes of class {name!r}, which the detector lacks"
        for name, count in counts.items()
    ]
