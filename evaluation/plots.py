"""Draw an evaluation: curves by class, the confusion matrix, and a sheet of the worst mistakes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lensbox.common.files import atomic_write
from lensbox.evaluation.average_precision import Array
from lensbox.evaluation.evaluate import Scored
from lensbox.runtime.images.files import read_image

MISTAKES = 16
MOST_NAMES = 20  # of classes that are written on a picture
LABELLED, FOUND = "#1a9641", "#d7191c"  # colours of boxes


class Mistake(NamedTuple):
    """A false alarm or a miss: index of the photograph, its box, and words."""

    photograph: int
    box: Array
    title: str


def write_plots(scored: Scored, folder: Path) -> None:
    """Write precision_recall.png, f1.png, confusion.png and mistakes.png."""
    names = scored.classes or ("object",)
    curves = {name: scored.matches.curve(0, label) for label, name in enumerate(names)}
    for file, title, x, y in (
        ("precision_recall", "precision over recall", "recall", "precision"),
        ("f1", "F1 over score threshold", "score threshold", "F1"),
    ):
        figure, axes = _figure(7, 5)
        for name, curve in curves.items():
            if curve.total:
                pair = (
                    (curve.recall, curve.envelope) if file == "precision_recall" else (curve.scores, curve.f1)
                )
                axes.plot(*pair, label=f"{name}, AP {curve.average_precision():.3f}, {curve.total} boxes")
        axes.set(title=f"{title}, IoU 0.5, at least 8 px", xlabel=x, ylabel=y, xlim=(0, 1), ylim=(0, 1.02))
        axes.grid(alpha=0.3)
        if len(names) <= MOST_NAMES:
            axes.legend(loc="lower left")
        _save(figure, folder / f"{file}.png")
    _save(_confusion(scored, names), folder / "confusion.png")
    _save(_sheet(scored, names), folder / "mistakes.png")


def _figure(width: float, height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _save(figure: Figure, path: Path) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    atomic_write(path, buffer.getvalue())


def _threshold(scored: Scored) -> float:
    """Return the score of the best F1, at which confusions and mistakes are counted."""
    return float(np.nan_to_num(scored.figures.recommended_threshold, nan=scored.figures.score_threshold or 0))


def _confusion(scored: Scored, names: tuple[str, ...]) -> Figure:
    """Draw how many boxes of each class were found as which class; the shade is the share of the row."""
    table, threshold = scored.matches.confusion(_threshold(scored)), _threshold(scored)
    side = min(4 + 0.5 * len(names), 24)
    figure, axes = _figure(side + 1, side)
    axes.imshow(table / np.maximum(table.sum(1, keepdims=True), 1), cmap="Blues", vmin=0, vmax=1)
    title = f"boxes by class, IoU 0.5, scores above {threshold:.2f}"
    axes.set(title=title, xlabel="found as", ylabel="labelled as")
    if len(names) <= MOST_NAMES:
        ticks = range(len(table))
        axes.set_xticks(ticks, [*names, "not found"], rotation=45, ha="right")
        axes.set_yticks(ticks, [*names, "background"])
        for (row, column), count in np.ndenumerate(table):
            if (row, column) != (len(names), len(names)):  # nothing found where nothing is
                dark = count > table[row].sum() / 2
                axes.text(column, row, count, ha="center", va="center", color="white" if dark else "black")
    return figure


def _mistakes(scored: Scored, names: tuple[str, ...]) -> list[Mistake]:
    """Return the false alarms with the highest scores and the largest misses, as many of each if possible."""
    threshold = _threshold(scored)
    alarms: list[tuple[float, Mistake]] = []
    misses: list[tuple[float, Mistake]] = []
    for index, (found, labels, matched, (classes, takers)) in enumerate(
        zip(scored.found, scored.labels, scored.matches.labelled(), scored.matches.missed, strict=True)
    ):
        wrong = (matched != -2) & (matched != found.classes) & (found.scores > threshold)
        for row in np.flatnonzero(wrong):
            label, score = names[found.classes[row]], found.scores[row]
            what = "false alarm" if matched[row] < 0 else f"is {names[matched[row]]}"
            alarms.append((-score, Mistake(index, found.boxes[row], f"{label} {score:.2f}: {what}")))
        for row in np.flatnonzero((takers <= threshold) & (classes >= 0)):
            box = labels.boxes[row]
            height = box[3] - box[1]
            misses.append((-height, Mistake(index, box, f"{names[classes[row]]}, {height:.0f} px: missed")))
    alarms, misses = (sorted(ones, key=lambda one: one[0])[:MISTAKES] for ones in (alarms, misses))
    half = max(MISTAKES // 2, MISTAKES - len(misses))
    first = alarms[:half]
    return [mistake for _, mistake in [*first, *misses[: MISTAKES - len(first)]]]


def _sheet(scored: Scored, names: tuple[str, ...]) -> Figure:
    """Draw the part of the photograph around each mistake, with the boxes there."""
    figure = Figure(figsize=(13, 14), layout="constrained")
    figure.suptitle(
        "the worst mistakes: labelled boxes green, found boxes red, the mistake thick", fontsize=15
    )
    panels = figure.subplots(4, 4).ravel()
    for panel in panels:
        panel.set_axis_off()
    for panel, (index, box, title) in zip(panels, _mistakes(scored, names), strict=False):
        image, found = scored.photographs[index], scored.found[index]
        pixels = read_image(image.read_bytes(), image.orientation).permute(1, 2, 0).numpy()
        panel.imshow(pixels.squeeze(), cmap="gray", vmin=0, vmax=255)
        shown = found.boxes[found.scores > _threshold(scored)]
        for boxes, color in ((scored.labels[index].boxes, LABELLED), (shown, FOUND)):
            for x1, y1, x2, y2 in boxes:
                width = 3 if (x1, y1, x2, y2) == tuple(box) else 1
                sides = (x1, y1), x2 - x1, y2 - y1
                panel.add_patch(Rectangle(*sides, fill=False, edgecolor=color, linewidth=width))
        reach = max(1.5 * max(box[2] - box[0], box[3] - box[1]), 24)
        x, y = (box[:2] + box[2:]) / 2
        panel.set_xlim(max(x - reach, 0), min(x + reach, image.width))
        panel.set_ylim(min(y + reach, image.height), max(y - reach, 0))
        panel.set_title(f"{title}\n{image.name[-34:]}", fontsize=9)
    return figure
