"""Degrade a face until a detector misses it, search photographs without a face, and draw the results.

Every step of every factor (`degradations.FACTORS`) is tried in nine placements, at different offsets from the
cells of every stride. A limit then depends less on the position of the face on the detector's grid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from lensbox.common.samples import DRAWN_BOXES, face_free_photos, gray_portraits
from lensbox.model.config import CANVAS_SIZE
from lensbox.ops import letterbox
from lensbox.train.evaluation.average_precision import MATCH_IOU, Array, ImageDetections, iou_matrix
from lensbox.train.evaluation.evaluate import Detect, detect_all
from lensbox.train.evaluation.pictures import FOUND_COLOR, IGNORED_COLOR, save_picture
from lensbox.train.stress.degradations import FACTORS, Factor, Pixels, Portrait, Step, place

# Multiples of 11 px have different offsets from the cells of every stride, 4 to 32. The number of placements
# is odd, so that one has the median score.
SHIFTS = tuple(itertools.product((-11, 0, 11), (-11, 0, 11)))


@dataclass(frozen=True)
class Trial:
    """A portrait at a step.

    Attributes:
        scores: float64 [9], one a placement: best score of a detection with IoU >= 0.5, 0 if there is none.
        canvas, box, detections: of the placement with the median score, which the sheet shows.
    """

    scores: Array
    canvas: Pixels
    box: Array
    detections: ImageDetections

    @property
    def score(self) -> float:
        """Return the median score: most placements are found at any lower threshold."""
        return float(np.median(self.scores))


@dataclass(frozen=True)
class FactorResult:
    """trials[step][portrait], in the order of the factor's steps and of the portraits."""

    factor: Factor
    trials: list[list[Trial]]

    def found(self, threshold: float) -> npt.NDArray[np.int64]:
        """Return the number of portraits whose face is found at each step, int64 [steps]."""
        return np.array([sum(trial.score > threshold for trial in row) for row in self.trials])

    def limit(self, threshold: float, faces: int) -> str | None:
        """Return the last step before fewer than `faces` are found; None if the first step is too hard."""
        enough = self.found(threshold) >= faces
        count = len(enough) if enough.all() else int(enough.argmin())
        return self.factor.steps[count - 1].label if count else None


@dataclass(frozen=True)
class FaceFreeResult:
    """A photograph without a face: name, views uint8 [V, 256, 256], and the detections in each."""

    name: str
    views: Pixels
    detections: list[ImageDetections]

    def false_alarms(self, threshold: float) -> int:
        """Return how many detections score above the threshold, in all views."""
        return sum(int((found.scores > threshold).sum()) for found in self.detections)


def stress_test(
    detect: Detect, portraits: Sequence[Portrait], factors: Sequence[Factor], device: torch.device | str
) -> list[FactorResult]:
    """Try every portrait at every step of every factor, in all placements."""
    return [
        FactorResult(factor, [[_try(detect, p, step, device) for p in portraits] for step in factor.steps])
        for factor in factors
    ]


def _try(detect: Detect, portrait: Portrait, step: Step, device: torch.device | str) -> Trial:
    # Every second placement turns the other way: faces lean to both sides.
    steps = [step, Step(step.label, step.height, -step.angle, step.degrade)]
    placed = [place(portrait, steps[seed % 2], shift, seed) for seed, shift in enumerate(SHIFTS)]
    canvases = np.stack([canvas for canvas, _ in placed])
    found = detect_all(detect, torch.from_numpy(canvases)[:, None], device)
    scores = np.array([_score(found[i], box) for i, (_, box) in enumerate(placed)])
    median = int(np.argsort(scores, kind="stable")[len(scores) // 2])
    return Trial(scores, canvases[median], placed[median][1], found[median])


def _score(found: ImageDetections, box: Array) -> float:
    hits = iou_matrix(found.boxes, box[None])[:, 0] >= MATCH_IOU
    return float(found.scores[hits].max(initial=0.0))


def search_face_free(
    detect: Detect, photos: Mapping[str, Pixels], device: torch.device | str
) -> list[FaceFreeResult]:
    """Run the detector over photographs without faces.

    Args:
        photos: by name, uint8 [H, W], gray, or [H, W, 3], RGB. Each is seen whole, and at its four corners in
            squares of 60 % of its short side: the five views of its result.
    """
    results = []
    for name, pixels in photos.items():
        image = torch.from_numpy(np.atleast_3d(pixels)).permute(2, 0, 1)
        views, _ = letterbox(_views(image), CANVAS_SIZE, CANVAS_SIZE)
        results.append(FaceFreeResult(name, views[:, 0].numpy(), detect_all(detect, views, device)))
    return results


def _views(image: Tensor) -> list[Tensor]:
    height, width = image.shape[1:]
    side = max(1, round(0.6 * min(height, width)))
    corners = itertools.product((slice(0, side), slice(-side, None)), repeat=2)
    return [image, *(image[:, rows, columns] for rows, columns in corners)]


def sample_portraits() -> list[Portrait]:
    """Return the two portraits of installed packages, with the boxes drawn by hand."""
    return [
        Portrait(name, pixels, np.array(DRAWN_BOXES[name], np.float64))
        for name, pixels in gray_portraits().items()
    ]


def run_stress(detect: Detect, threshold: float, device: torch.device, output: Path) -> None:
    """Run the stress test, print its table and draw it to the PNG file `output`."""
    results = stress_test(detect, sample_portraits(), FACTORS, device)
    face_free = search_face_free(detect, face_free_photos(), device)
    print(table(results, threshold))
    print(f"\n{false_alarm_line(face_free, threshold)}")
    save_picture(stress_sheet(results, face_free, threshold), output)
    print(f"\nwrote {output}")


def table(results: Sequence[FactorResult], threshold: float) -> str:
    """Return the limit of every factor for two portraits, as a table in Markdown."""
    lines = ["| what changes | steps | both faces found up to | one up to |", "| --- | --- | ---: | ---: |"]
    for result in results:
        steps = ", ".join(step.label for step in result.factor.steps)
        limits = [result.limit(threshold, faces) or "none" for faces in (2, 1)]
        lines.append(f"| {result.factor.name} | {steps} | {limits[0]} | {limits[1]} |")
    return "\n".join(lines)


def false_alarm_line(results: Sequence[FaceFreeResult], threshold: float) -> str:
    """Return how many false alarms there were, and in which photographs, as a sentence."""
    alarms = {result.name: result.false_alarms(threshold) for result in results}
    views = sum(len(result.views) for result in results)
    where = ", ".join(f"{name} {count}" for name, count in alarms.items() if count)
    return (
        f"False alarms above {threshold:g} in {views} views of {len(results)} photographs without a face: "
        f"{sum(alarms.values())}{f' ({where})' if where else ''}."
    )


MISSED_COLOR = IGNORED_COLOR
TILE = 56  # side of a face's tile, pixels of the sheet
GAP = 3
LINE = 13  # height of a line of text
MARGIN = 1.7  # side of a face's tile, in heights of the face
INK, PAPER = (0, 0, 0), (255, 255, 255)
GRAYS = 22  # enough for the eye; with all of them the file would be twice as large


def stress_sheet(
    results: Sequence[FactorResult], face_free: Sequence[FaceFreeResult], threshold: float
) -> Image.Image:
    """Draw detections above the threshold blue and a missed face red.

    The tile shows the placement with the median score. The text below gives this score and the number of
    placements in which the face was found. A face-free photograph is shown in the view with the best score.
    """
    pair = len(results[0].trials[0]) * (TILE + 1) + GAP
    columns = max(len(face_free), *(len(result.trials) for result in results))
    row = 2 * LINE + TILE + LINE + GAP
    sheet = Image.new("RGB", (columns * pair, len(results) * row + 2 * LINE + pair), PAPER)
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=11)
    for index, result in enumerate(results):
        top = index * row
        draw.text((0, top), result.factor.name, INK, font)
        for column, (step, trials) in enumerate(zip(result.factor.steps, result.trials, strict=True)):
            draw.text((column * pair, top + LINE), step.label, INK, font)
            for slot, trial in enumerate(trials):
                corner = (column * pair + slot * (TILE + 1), top + 2 * LINE)
                sheet.paste(_face_tile(trial, step.height, threshold), corner)
                color = INK if trial.score > threshold else MISSED_COLOR
                draw.text((corner[0], corner[1] + TILE), _caption(trial, threshold), color, font)
    top = len(results) * row
    draw.text((0, top), "no face: false alarms in five views, and the view with the best score", INK, font)
    for column, photo in enumerate(face_free):
        caption = f"{photo.name.replace('_', ' ')}: {photo.false_alarms(threshold)}"
        draw.text((column * pair, top + LINE), caption, INK, font)
        sheet.paste(_photo_tile(photo, pair - GAP, threshold), (column * pair, top + 2 * LINE))
    return sheet.quantize(palette=_palette(), dither=Image.Dither.NONE)


def _caption(trial: Trial, threshold: float) -> str:
    count = int((trial.scores > threshold).sum())
    return f"{trial.score:.2f}  {count}/{len(trial.scores)}"


def _face_tile(trial: Trial, height: float, threshold: float) -> Image.Image:
    """Return the surroundings of the face, at the same size whatever its height in the canvas."""
    side = MARGIN * height
    middle = (trial.box[:2] + trial.box[2:]) / 2
    corner = middle - side / 2
    missed = trial.box[None] if trial.score <= threshold else np.zeros((0, 4))
    return _tile(trial.canvas, corner, side, TILE, trial.detections, missed, threshold)


def _photo_tile(photo: FaceFreeResult, size: int, threshold: float) -> Image.Image:
    best = [found.scores.max(initial=0.0) for found in photo.detections]
    view = int(np.argmax(best))
    side = float(photo.views.shape[-1])
    nothing = np.zeros((0, 4))
    return _tile(photo.views[view], np.zeros(2), side, size, photo.detections[view], nothing, threshold)


def _tile(
    canvas: Pixels,
    corner: Array,
    side: float,
    size: int,
    detections: ImageDetections,
    missed: Array,
    threshold: float,
) -> Image.Image:
    """Return a square of a canvas, of this side from `corner`, drawn `size` pixels wide, with its boxes."""
    scale = size / side
    filtering = Image.Resampling.BILINEAR if scale < 1 else Image.Resampling.NEAREST
    # First whole pixels, since only `crop` may reach beyond the canvas, then the exact square.
    left, top = (math.floor(edge) for edge in corner)
    whole = math.ceil(side) + 1
    picture = Image.fromarray(canvas).crop((left, top, left + whole, top + whole))
    x, y = corner - (left, top)
    tile = picture.resize((size, size), filtering, box=(x, y, x + side, y + side)).convert("RGB")
    draw = ImageDraw.Draw(tile)
    kept = detections.boxes[detections.scores > threshold]
    for boxes, color in ((missed, MISSED_COLOR), (kept, FOUND_COLOR)):
        for x1, y1, x2, y2 in (boxes - np.tile(corner, 2)) * scale:
            draw.rectangle((x1, y1, max(x1, x2 - 1), max(y1, y2 - 1)), outline=color)
    return tile


def _palette() -> Image.Image:
    grays = [(level, level, level) for level in np.linspace(0, 255, GRAYS).round().astype(int).tolist()]
    colors = [*grays, MISSED_COLOR, FOUND_COLOR]
    palette = Image.new("P", (1, 1))
    palette.putpalette([value for color in colors for value in color])
    return palette
