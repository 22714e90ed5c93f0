"""Labelled photographs, fitted to the canvas of the detector that is to be scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lensbox.common.errors import InputError
from lensbox.model.config import CANVAS_SIZE
from lensbox.ops import letterbox
from lensbox.runtime.file.metadata import Canvas
from lensbox.train.data.image_store import Decoded, decode_all, decode_image
from lensbox.train.data.labels import LabelledImage, Problem
from lensbox.train.evaluation.boxes import Array, ImageLabels

FACE_CANVAS = Canvas(CANVAS_SIZE, CANVAS_SIZE)


class Place(NamedTuple):
    """The place of a photograph on its canvas: scale and offset of x1, y1, x2 and y2, float64 [4] each."""

    scale: Array
    offset: Array

    def boxes(self, boxes: npt.NDArray[np.floating[Any]]) -> Array:
        """Map boxes [n, 4] from pixels of the photograph to canvas pixels."""
        return np.asarray(boxes.astype(np.float64) * self.scale + self.offset)


@dataclass(frozen=True)
class EvaluationSet:
    """Letterboxed photographs with their labels.

    Attributes:
        canvas: to which the photographs are fitted.
        canvases: uint8 [N, C, H, W], on the CPU.
        labels: boxes in canvas pixels, one entry a photograph.
        files, places: the file of each photograph, and the scale and offset of its boxes on the canvas.
        classes: names by label; empty for a detector of one kind.
        problems: unreadable photographs, and boxes of other classes.
    """

    canvas: Canvas
    canvases: Tensor
    labels: Sequence[ImageLabels]
    files: Sequence[LabelledImage]
    places: Sequence[Place]
    classes: tuple[str, ...]
    problems: list[Problem]


def load_evaluation_set(
    images: Sequence[LabelledImage],
    workers: int = 8,
    canvas: Canvas = FACE_CANVAS,
    classes: Sequence[str] = (),
) -> EvaluationSet:
    """Decode and letterbox photographs exactly as artifacts without a `preprocess` of their own do.

    classes: of the detector. Boxes of other classes are left out; without classes, all boxes count.

    Raises:
        InputError: no photograph can be read, or no box has one of the classes.
    """

    def prepare(image: LabelledImage) -> tuple[Decoded, tuple[Tensor, ImageLabels, Place]]:
        decoded = decode_image(image, side=1 << 30, mode="L" if canvas.channels == 1 else "RGB")
        pixels = torch.from_numpy(np.atleast_3d(decoded.pixels).copy()).permute(2, 0, 1)
        canvases, geometry = letterbox([pixels], *canvas.as_tuple)
        place = Place(*(geometry[0, i : i + 2].repeat(2).double().numpy() for i in (0, 2)))
        numbers = np.zeros(len(decoded.boxes), np.int64)
        if classes:
            known = {name: label for label, name in enumerate(classes)}
            numbers = np.array([known.get(name, -1) for name in image.labels.classes], np.int64)
        kept = numbers >= 0
        labels = ImageLabels(place.boxes(decoded.boxes)[kept], decoded.ignore[kept], numbers[kept])
        return decoded, (canvases[0], labels, place)

    problems: list[Problem] = []
    files, ready = zip(*decode_all(images, prepare, workers, problems), strict=True)
    canvases, labels, places = zip(*ready, strict=True)
    if classes:
        problems += _other_classes(images, classes)
        if not any(len(each.boxes) for each in labels):
            raise InputError(
                f"evaluation data must hold boxes of the detector's classes, {', '.join(classes)}, got none: "
                "a row names its class after ten numbers"
            )
    stacked = torch.stack(canvases)
    return EvaluationSet(canvas, stacked, labels, files, places, tuple(classes), problems)


def _other_classes(images: Sequence[LabelledImage], classes: Sequence[str]) -> list[Problem]:
    """Return a problem for each class that the detector lacks, at the first of its boxes."""
    names = [(name, image.origin) for image in images for name in image.labels.classes if name not in classes]
    counts, first = Counter(name for name, _ in names), dict(reversed(names))
    return [
        Problem(first[name], f"{count} boxes of class {name!r}, which the detector lacks")
        for name, count in counts.items()
    ]
