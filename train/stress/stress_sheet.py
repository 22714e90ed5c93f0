"""The stress test as one picture: a row a factor, a tile a step and portrait, a last row for false alarms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from lensbox.train.average_precision import Array, ImageDetections
from lensbox.train.evaluation.contact_sheet import IGNORED_COLOR
from lensbox.train.evaluation.pictures import FOUND_COLOR
from lensbox.train.stress.degradations import Pixels
from lensbox.train.stress.stress_test import FaceFreeResult, FactorResult, Trial

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
    """Draws detections above the threshold blue and a missed face red.

    Below a face stand the median score of its placements, which is that of the one shown, and in how many of
    them it was found. A face-free photograph is shown in the view with the best score.
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
    """The surroundings of the face, at the same size whatever its height in the canvas."""
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
    """A square of a canvas, of this side from `corner`, drawn `size` pixels wide, with its boxes."""
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
