"""Pictures of an evaluation: precision-recall curves, and the worst misses and false alarms."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from lensbox.files import atomic_write
from lensbox.train.evaluation.average_precision import BANDS, Curve, Evaluation
from lensbox.train.evaluation.contact_sheet import IGNORED_COLOR, TARGET_COLOR, contact_sheet, save_picture
from lensbox.train.evaluation.evaluate import EvaluationSet

FOUND_COLOR = (80, 160, 255)


def write_pictures(data: EvaluationSet, matched: Evaluation, folder: Path) -> None:
    """Writes `precision_recall.png` (if matplotlib is there), `false_alarms.png` and `misses.png`.

    The sheets show labels green, ignored boxes red and detections blue.
    """
    curve = matched.curve(*BANDS["all>=8"])
    save_picture(_sheet(data, matched, false_alarms(curve, 24)), folder / "false_alarms.png")
    save_picture(_sheet(data, matched, misses(matched, curve, 24)), folder / "misses.png")
    _plot(matched, folder / "precision_recall.png")


def false_alarms(curve: Curve, count: int) -> list[tuple[int, float]]:
    """Images with the most confident false alarms: (image, score to show detections from), worst first."""
    chosen: dict[int, float] = {}
    for rank in np.flatnonzero(~curve.hits):
        if len(chosen) == count:
            break
        chosen.setdefault(int(curve.image[rank]), float(curve.scores[rank]))
    return list(chosen.items())


def misses(matched: Evaluation, curve: Curve, count: int, threshold: float = 0.3) -> list[tuple[int, float]]:
    """Images with the most faces of at least 8 px that nothing above `threshold` found, and `threshold`."""
    found = np.bincount(curve.image[curve.hits & (curve.scores >= threshold)], minlength=len(matched.labels))
    low = BANDS["all>=8"][0]
    present = [int(((t.boxes[:, 3] - t.boxes[:, 1] >= low) & ~t.ignore).sum()) for t in matched.labels]
    missed = np.array(present) - found
    worst = np.argsort(-missed, kind="stable")[:count]
    return [(int(index), threshold) for index in worst if missed[index] > 0]


def _sheet(data: EvaluationSet, matched: Evaluation, chosen: list[tuple[int, float]]) -> Image.Image:
    if not chosen:
        return Image.new("RGB", (256, 256))
    labels, ignored, found = [], [], []
    for index, score in chosen:
        truth, detections = matched.labels[index], matched.detections[index]
        labels.append(torch.from_numpy(truth.boxes[~truth.ignore]))
        ignored.append(torch.from_numpy(truth.boxes[truth.ignore]))
        found.append(torch.from_numpy(detections.boxes[detections.scores >= score]))
    pad = torch.nn.utils.rnn.pad_sequence
    sets = [(ignored, IGNORED_COLOR), (labels, TARGET_COLOR), (found, FOUND_COLOR)]
    padded = [(pad(boxes, batch_first=True), color) for boxes, color in sets]
    return contact_sheet(data.canvases[[index for index, _ in chosen]], padded, columns=6, zoom=2)


def _plot(matched: Evaluation, path: Path) -> None:
    try:
        from matplotlib.figure import Figure  # optional
    except ImportError:
        return
    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    for name, limits in BANDS.items():
        curve = matched.curve(*limits)
        if curve.total:
            axes.plot(curve.recall, curve.precision, label=f"{name} px: {curve.average_precision():.3f}")
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02), title="IoU 0.5")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left")
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=120)
    atomic_write(path, buffer.getvalue())
