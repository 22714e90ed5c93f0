"""Draw an evaluation: curves by class, the confusion matrix, and a sheet of the worst mistakes."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lensbox.common.files import atomic_write
from lensbox.evaluation.average_precision import Array
from lensbox.evaluation.figures import Figures
from lensbox.runtime.images.files import read_image

MISTAKES = 16
MOST_NAMES = 20  # of classes that are written on a picture
LABELLED, FOUND = "#1a9641", "#d7191c"  # colours of boxes

Mistake = tuple[int, Array, str]  # a false alarm or a miss: index of the photograph, its box, and words


def write_plots(figures: Figures, folder: Path) -> None:
    """Write precision_recall.png, f1.png, confusion.png and mistakes.png."""
    names = [*figures.classes] or ["object"]
    # The score of the best F1, at which confusions and mistakes are counted.
    threshold = float(np.nan_to_num(figures.recommended_threshold, nan=figures.score_threshold or 0))
    pictures = {
        "precision_recall": _curves(figures, names, "recall", "precision"),
        "f1": _curves(figures, names, "score threshold", "F1"),
        "confusion": _confusion(figures, names, threshold),
        "mistakes": _sheet(figures, names, threshold),
    }
    for name, picture in pictures.items():
        buffer = io.BytesIO()
        picture.savefig(buffer, format="png", dpi=110)
        atomic_write(folder / f"{name}.png", buffer.getvalue())


def _curves(figures: Figures, names: list[str], x: str, y: str) -> Figure:
    picture = Figure(figsize=(7, 5), layout="constrained")
    axes = picture.subplots()
    for label, name in enumerate(names):
        curve = figures.matches.curve(0, label)
        if curve.total:
            points = (curve.recall, curve.envelope) if x == "recall" else (curve.scores, curve.f1)
            axes.plot(*points, label=f"{name}, AP {curve.average_precision():.3f}, {curve.total} boxes")
    axes.set(title=f"{y} over {x}, IoU 0.5, at least 8 px", xlabel=x, ylabel=y, xlim=(0, 1), ylim=(0, 1.02))
    axes.grid(alpha=0.3)
    if len(names) <= MOST_NAMES:
        axes.legend(loc="lower left")
    return picture


def _confusion(figures: Figures, names: list[str], threshold: float) -> Figure:
    """Draw how many boxes of each class were found as which class; the shade is the share of the row."""
    table, side = figures.matches.confusion(threshold), min(4 + 0.5 * len(names), 24)
    picture = Figure(figsize=(side + 1, side), layout="constrained")
    axes: Any = picture.subplots()
    axes.imshow(table / np.maximum(table.sum(1, keepdims=True), 1), cmap="Blues", vmin=0, vmax=1)
    title = f"boxes by class, IoU 0.5, scores above {threshold:.2f}"
    axes.set(title=title, xlabel="found as", ylabel="labelled as")
    if len(names) <= MOST_NAMES:
        axes.set_xticks(range(len(table)), [*names, "not found"], rotation=45, ha="right")
        axes.set_yticks(range(len(table)), [*names, "background"])
        for row, column in [*np.ndindex(table.shape)][:-1]:  # the last: nothing found where nothing is
            dark = table[row, column] > table[row].sum() / 2
            color = "white" if dark else "black"
            axes.text(column, row, table[row, column], ha="center", va="center", color=color)
    return picture


def _mistakes(figures: Figures, names: list[str], threshold: float) -> list[Mistake]:
    """Return the false alarms with the highest scores and the largest misses, as many of each if possible."""
    alarms: list[tuple[float, Mistake]] = []
    misses: list[tuple[float, Mistake]] = []
    for index, (labels, found, _, hits, takers, _) in enumerate(figures.matches.images):
        for row in np.flatnonzero((hits != -2) & (hits != found.classes) & (found.scores > threshold)):
            truth = "false alarm" if hits[row] < 0 else f"is {names[hits[row]]}"
            title = f"{names[found.classes[row]]} {found.scores[row]:.2f}: {truth}"
            alarms.append((-found.scores[row], (index, found.boxes[row], title)))
        for row in np.flatnonzero((takers <= threshold) & ~labels.ignore):
            height = labels.boxes[row, 3] - labels.boxes[row, 1]
            title = f"{names[labels.classes[row]]}, {height:.0f} px: missed"
            misses.append((-height, (index, labels.boxes[row], title)))
    alarms, misses = (sorted(ones, key=lambda one: one[0])[:MISTAKES] for ones in (alarms, misses))
    first = alarms[: max(MISTAKES // 2, MISTAKES - len(misses))]
    return [mistake for _, mistake in [*first, *misses[: MISTAKES - len(first)]]]


def _sheet(figures: Figures, names: list[str], threshold: float) -> Figure:
    """Draw the part of the photograph around each mistake, with the boxes there."""
    picture = Figure(figsize=(13, 14), layout="constrained")
    title = "the worst mistakes: labelled boxes green, found boxes red, the mistake thick"
    picture.suptitle(title, fontsize=15)
    panels = picture.subplots(4, 4, subplot_kw={"frame_on": False, "xticks": (), "yticks": ()}).ravel()
    for panel, (index, box, title) in zip(panels, _mistakes(figures, names, threshold), strict=False):
        image, (labels, found, *_) = figures.photographs[index], figures.matches.images[index]
        pixels = read_image(image.read_bytes(), image.orientation).permute(1, 2, 0).numpy()
        panel.imshow(pixels.squeeze(), cmap="gray", vmin=0, vmax=255)
        for boxes, color in ((labels.boxes, LABELLED), (found.boxes[found.scores > threshold], FOUND)):
            for one in boxes:
                width = 3 if (one == box).all() else 1
                panel.add_patch(Rectangle(one[:2], *one[2:] - one[:2], fill=False, ec=color, lw=width))
        reach, (x, y) = max(1.5 * (box[2:] - box[:2]).max(), 24), (box[:2] + box[2:]) / 2
        panel.set_xlim(max(x - reach, 0), min(x + reach, image.width))
        panel.set_ylim(min(y + reach, image.height), max(y - reach, 0))
        panel.set_title(f"{title}\n{image.name[-34:]}", fontsize=9)
    return picture
