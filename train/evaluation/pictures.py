"""Pictures: sheets of views with boxes, precision-recall curves, the worst misses and false alarms."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from lensbox.common.files import atomic_write
from lensbox.train.evaluation.average_precision import BANDS, Curve, Evaluation, ImageDetections, ImageLabels
from lensbox.train.evaluation.evaluation_set import EvaluationSet

TARGET_COLOR = (60, 255, 90)
IGNORED_COLOR = (255, 90, 60)


class BoxSet(NamedTuple):
    """Boxes [B, M, 4] (xyxy pixels, slots with y2 = 0 unused), their color, and the name to write at each, by
    image and slot; none without classes."""

    boxes: Tensor
    color: tuple[int, int, int]
    names: Sequence[Sequence[str]] = ()


def contact_sheet(images: Tensor, box_sets: Sequence[BoxSet], columns: int = 8, zoom: int = 1) -> Image.Image:
    """Return a picture of all views in a grid.

    Args:
        images: [B, C, H, W], 0 to 255, C = 1 (gray) or 3 (RGB).
        columns: views per row. zoom: pixels of the sheet per pixel of a view.
    """
    count, _, height, width = images.shape
    rows = -(-count // columns)
    sheet = Image.new("RGB", (columns * width * zoom, rows * height * zoom))
    for index in range(count):
        pixels: npt.NDArray[np.uint8] = images[index].float().round().clamp(0, 255).byte().cpu().numpy()
        picture = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
        tile = picture.convert("RGB").resize((width * zoom, height * zoom))
        draw = ImageDraw.Draw(tile)
        for boxes, color, names in box_sets:
            for slot, (x1, y1, x2, y2) in enumerate(boxes[index].cpu().tolist()):
                if y2 > 0:
                    right, bottom = max(x1, x2 - 1), max(y1, y2 - 1)
                    draw.rectangle((x1 * zoom, y1 * zoom, right * zoom, bottom * zoom), outline=color)
                    if names:
                        draw.text((x1 * zoom + 2, y1 * zoom + 1), names[index][slot], color)
        sheet.paste(tile, (index % columns * width * zoom, index // columns * height * zoom))
    return sheet


def save_contact_sheet(images: Tensor, targets: Tensor, ignored: Tensor, path: Path) -> None:
    """Write a sheet of training views: targets green, ignored boxes red."""
    sets = [BoxSet(ignored, IGNORED_COLOR), BoxSet(targets, TARGET_COLOR)]
    save_picture(contact_sheet(images, sets), path)


def save_picture(picture: Image.Image, path: Path) -> None:
    """Write a PNG, whole or not at all."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    atomic_write(path, buffer.getvalue())


FOUND_COLOR = (80, 160, 255)
_MOST_CURVES = 10


def write_pictures(data: EvaluationSet, matched: Evaluation, folder: Path) -> None:
    """Write `precision_recall.png` (if matplotlib is there), `false_alarms.png` and `misses.png`.

    The sheets show labels green, ignored boxes red and detections blue.
    """
    curve = matched.curve(*BANDS["all>=8"])
    save_picture(_sheet(data, matched, false_alarms(curve, 24)), folder / "false_alarms.png")
    save_picture(_sheet(data, matched, misses(matched, curve, 24)), folder / "misses.png")
    _plot(_curves(data, matched), folder / "precision_recall.png")


def false_alarms(curve: Curve, count: int) -> list[tuple[int, float]]:
    """Return (image, least score to show) of the most confident false alarms, worst first."""
    chosen: dict[int, float] = {}
    for rank in np.flatnonzero(~curve.hits):
        if len(chosen) == count:
            break
        chosen.setdefault(int(curve.image[rank]), float(curve.scores[rank]))
    return list(chosen.items())


def misses(matched: Evaluation, curve: Curve, count: int, threshold: float = 0.3) -> list[tuple[int, float]]:
    """Return (image, `threshold`) of the images with the most boxes of at least 8 px not found above it."""
    found = np.bincount(curve.image[curve.hits & (curve.scores >= threshold)], minlength=len(matched.labels))
    low = BANDS["all>=8"][0]
    present = [int(((t.boxes[:, 3] - t.boxes[:, 1] >= low) & ~t.ignore).sum()) for t in matched.labels]
    missed = np.array(present) - found
    worst = np.argsort(-missed, kind="stable")[:count]
    return [(int(index), threshold) for index in worst if missed[index] > 0]


def _sheet(data: EvaluationSet, matched: Evaluation, chosen: list[tuple[int, float]]) -> Image.Image:
    if not chosen:
        return Image.new("RGB", (data.canvases.shape[3], data.canvases.shape[2]))
    truths = [matched.labels[index] for index, _ in chosen]
    found = [(matched.detections[index], score) for index, score in chosen]
    sets = [
        _box_set([(truth, truth.ignore) for truth in truths], IGNORED_COLOR, data.classes),
        _box_set([(truth, ~truth.ignore) for truth in truths], TARGET_COLOR, data.classes),
        _box_set([(boxes, boxes.scores >= score) for boxes, score in found], FOUND_COLOR, data.classes),
    ]
    return contact_sheet(data.canvases[[index for index, _ in chosen]], sets, columns=6, zoom=2)


def _box_set(
    images: Sequence[tuple[ImageLabels | ImageDetections, npt.NDArray[np.bool_]]],
    color: tuple[int, int, int],
    classes: Sequence[str],
) -> BoxSet:
    """Return the boxes of each image that a mask chooses."""
    boxes = [torch.from_numpy(image.boxes[chosen]) for image, chosen in images]
    names = [
        [classes[label] for label in image.classes[chosen]]
        for image, chosen in images
        if image.classes is not None and classes
    ]
    return BoxSet(torch.nn.utils.rnn.pad_sequence(boxes, batch_first=True), color, names)


def _curves(data: EvaluationSet, matched: Evaluation) -> dict[str, Curve]:
    """Return the curves by legend: bands without classes, else the classes with most boxes."""
    if not data.classes:
        curves = {f"{name} px": matched.curve(*limits) for name, limits in BANDS.items()}
    else:
        curves = {name: matched.curve(*BANDS["all>=8"], label) for label, name in enumerate(data.classes)}
    largest = sorted(curves, key=lambda name: -curves[name].total)[:_MOST_CURVES]
    return {name: curve for name, curve in curves.items() if curve.total and name in largest}


def _plot(curves: Mapping[str, Curve], path: Path) -> None:
    try:
        from matplotlib.figure import Figure  # optional
    except ImportError:
        return
    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    for name, curve in curves.items():
        axes.plot(curve.recall, curve.precision, label=f"{name}: {curve.average_precision():.3f}")
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02), title="IoU 0.5")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left")
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=120)
    atomic_write(path, buffer.getvalue())
