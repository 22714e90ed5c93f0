"""The figures of a detector by size band and by class, as a table and as JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lensbox.evaluation.average_precision import AREAS, BANDS, IOUS, MOST, Matches
from lensbox.evaluation.data.labels import LabelledImage

# pycocotools' figures: for each its kind, the IoU threshold or the mean over 0.5 to 0.95, the area and the
# most detections of a photograph. The first six are printed.
COCO_FIGURES: dict[str, tuple[str, float | None, str, int]] = {
    **{name: ("AP", iou, "all", 100) for name, iou in (("AP", None), ("AP50", 0.5), ("AP75", 0.75))},
    **{f"AP {area}": ("AP", None, area, 100) for area in ("small", "medium", "large")},
    **{f"AR{most}": ("AR", None, "all", most) for most in MOST},
    **{f"AR {area}": ("AR", None, area, 100) for area in ("small", "medium", "large")},
}


@dataclass(frozen=True)
class Figures:
    """The figures of an evaluation.

    average_precision: by band name, see `BANDS`; with classes the mean over those that have boxes in it.
    images, boxes: photographs, and boxes to find of at least 8 px. recommended_threshold, best_f1: score with
    the best F1 at 8 px and above, of all classes; that F1. coco: by the names of `COCO_FIGURES`. classes:
    `average_precision` and `boxes` by name; empty for a detector without classes. score_threshold,
    iou_threshold: of the detections; None for detections of a file. canvas: height and width of the canvas of
    whose pixels the heights are; None for the photographs'. account: `Account.to_json` of the labels.
    photographs, matches: what was scored, for the pictures; not in the JSON.
    """

    average_precision: dict[str, float]
    images: int
    boxes: int
    recommended_threshold: float
    best_f1: float
    coco: dict[str, float]
    classes: dict[str, dict[str, Any]] = field(default_factory=dict)
    score_threshold: float | None = None
    iou_threshold: float | None = None
    canvas: tuple[int, int] | None = None
    account: dict[str, Any] = field(default_factory=dict)
    photographs: Sequence[LabelledImage] = field(default=(), repr=False)
    matches: Matches = field(default_factory=Matches, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return the figures for JSON, with null for bands without boxes."""
        figures = {name: x for name, x in vars(self).items() if name not in ("photographs", "matches")}
        read: dict[str, Any] = json.loads(json.dumps(figures), parse_constant=lambda _: None)
        return read

    def lines(self) -> list[str]:
        """Return the lines of a small table."""
        names = [f"{name.lstrip('abcdefghijklmnopqrstuvwxyz')} px" for name in self.average_precision]
        rows = [
            (_row(names), "boxes", ""),
            (_row(self.average_precision.values()), self.boxes, f"mean of {len(self.classes)} classes"),
            *((_row(one["average_precision"].values()), one["boxes"], k) for k, one in self.classes.items()),
        ]
        size = f"a canvas of {self.canvas[1]} x {self.canvas[0]}" if self.canvas else "the photographs"
        least, iou, named = self.score_threshold, self.iou_threshold, [*self.coco.items()][:6]
        return [
            f"average precision at IoU 0.5, {self.images} images, {self.boxes} boxes of at least 8 px",
            *(f"{row}  {count:>9}  {name}".rstrip() if self.classes else row for row, count, name in rows),
            f"best F1 {self.best_f1:.3f} at score {self.recommended_threshold:.3f}",
            "COCO, the 100 best detections an image, areas in pixels of the photographs",
            *map(_row, zip(*named, strict=True)),
            f"heights in pixels of {size}"
            + ("" if iou is None else f"; scores above {least:g}, NMS at IoU {iou:g}"),
        ]

    def coco_lines(self) -> list[str]:
        """Return the summary as pycocotools prints it, with -1 for areas without boxes."""
        lines = []
        for name, (kind, iou, area, most) in COCO_FIGURES.items():
            title = f"Average {'Precision' if kind == 'AP' else 'Recall'}"
            at, value = "0.50:0.95" if iou is None else f"{iou:0.2f}", np.nan_to_num(self.coco[name], nan=-1)
            where = f"[ IoU={at:<9} | area={area:>6s} | maxDets={most:>3d} ]"
            lines.append(f" {title:<18} ({kind}) @{where} = {value:0.3f}")
        return lines


def _row(values: Iterable[str | float]) -> str:
    return "  ".join(f"{one:>9}" if isinstance(one, str) else f"{one:9.4f}" for one in values)


def figures_of(matches: Matches, classes: Sequence[str], **more: Any) -> Figures:
    """Return the figures of all photographs that were added. classes: by label. more: fields of `Figures`."""
    curve, arrays = matches.curve(), dict(zip(("AP", "AR"), matches.coco(), strict=True))
    by_class: dict[str, dict[str, Any]] = {
        name: {"average_precision": matches.table(label), "boxes": matches.curve(0, label).total}
        for label, name in enumerate(classes)
    }
    tables = [one["average_precision"] for one in by_class.values()] or [matches.table()]
    coco = {}
    for name, (kind, iou, area, most) in COCO_FIGURES.items():
        values = arrays[kind][..., [*AREAS].index(area), MOST.index(most)]
        coco[name] = _mean(values if iou is None else values[np.isclose(IOUS, iou)])
    means = {band: _mean(np.array([table[band] for table in tables])) for band in BANDS}
    facts = {"classes": by_class, "matches": matches, **more}
    return Figures(means, len(matches.images), curve.total, *curve.best_threshold(), coco, **facts)


def _mean(values: Any) -> float:
    """Return the mean of the numbers that are not NaN; NaN if all are."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")
