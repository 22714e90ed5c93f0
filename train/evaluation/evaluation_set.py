"""Labelled photographs, fitted to the canvas of the detector that is to be scored."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
from lensbox.train.data.image_store import Decoded, decode_image
from lensbox.train.data.labels import LabelledImage, Problem, none_readable, report_turned
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
        canvases: uint8 [N, C, H, W], on the CPU.
        labels: boxes in canvas pixels, one entry a photograph.
        files, places: the file of each photograph, and the scale and offset of its boxes on the canvas.
        classes: names by label; empty for a detector of one kind.
        problems: unreadable photographs, and boxes of other classes.
    """

    canvases: Tensor
    labels: list[ImageLabels]
    files: list[LabelledImage]
    places: list[Place]
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
    numbers = {name: label for label, name in enumerate(classes)}

    def prepare(image: LabelledImage) -> tuple[Tensor, ImageLabels, Place, Decoded] | Problem:
        try:
            decoded = decode_image(image, side=1 << 30, mode="L" if canvas.channels == 1 else "RGB")
        except OSError as error:
            return Problem(image.origin, str(error))
        pixels = torch.from_numpy(np.atleast_3d(decoded.pixels).copy()).permute(2, 0, 1)
        canvases, geometry = letterbox([pixels], *canvas.as_tuple)
        place = Place(*(geometry[0, i : i + 2].repeat(2).double().numpy() for i in (0, 2)))
        boxes, ignore = place.boxes(decoded.boxes), decoded.ignore
        if not classes:
            return canvases[0], ImageLabels(boxes, ignore), place, decoded
        labels = np.array([numbers.get(name, -1) for name in image.classes], np.int64)
        known = labels >= 0
        known_labels = ImageLabels(boxes[known], ignore[known], labels[known])
        return canvases[0], known_labels, place, decoded

    canvases, labels, files, places, problems, turned = [], [], [], [], [], 0
    with ThreadPoolExecutor(max(1, workers)) as pool:
        for image, prepared in zip(images, pool.map(prepare, images), strict=True):
            if isinstance(prepared, Problem):
                problems.append(prepared)
                continue
            files.append(image)
            canvases.append(prepared[0])
            labels.append(prepared[1])
            places.append(prepared[2])
            turned += prepared[3].turned
            if prepared[3].problem is not None:
                problems.append(prepared[3].problem)
    if not canvases:
        raise none_readable("readable image", f"{len(images)} of them", problems)
    report_turned(images, turned)
    if classes:
        problems += _other_classes(images, numbers)
        if not any(len(image.boxes) for image in labels):
            raise InputError(
                f"evaluation data must hold boxes of the detector's classes, {', '.join(classes)}, got none: "
                "a row names its class after ten numbers"
            )
    return EvaluationSet(torch.stack(canvases), labels, files, places, tuple(classes), problems)


def _other_classes(images: Sequence[LabelledImage], known: dict[str, int]) -> list[Problem]:
    """Return a problem for each class that the detector lacks, at the first of its boxes."""
    places: dict[str, list[str]] = {}
    for image in images:
        for name in image.classes:
            if name not in known:
                places.setdefault(name, []).append(image.origin)
    return [
        Problem(found[0], f"{len(found)} boxes of class {name!r}, which the detector lacks")
        for name, found in places.items()
    ]
