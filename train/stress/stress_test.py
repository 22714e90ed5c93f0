"""How much a face can suffer until a detector misses it, and what it takes for a face where there is none.

Every step of every factor (`degradations.FACTORS`) is tried in nine placements, whose offsets differ in every
stride's cells, so that a limit depends less on how the face happens to lie on the detector's grid.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lensbox.common.samples import DRAWN_BOXES, gray_portraits
from lensbox.model.config import CANVAS_SIZE
from lensbox.ops import letterbox
from lensbox.train.average_precision import MATCH_IOU, Array, ImageDetections, iou_matrix
from lensbox.train.evaluation.evaluate import Detect, detect_all
from lensbox.train.stress.degradations import Factor, Pixels, Portrait, Step, place

# Multiples of 11 px lie differently in the cells of every stride, 4 to 32. Of an odd number of placements one
# has the median score.
SHIFTS = tuple(itertools.product((-11, 0, 11), (-11, 0, 11)))


@dataclass(frozen=True)
class Trial:
    """One portrait at one step.

    Attributes:
        scores: float64 [9], one a placement: best score of a detection with IoU >= 0.5, 0 if there is none.
        canvas, box, detections: of the placement whose score is the median, which is the one to show.
    """

    scores: Array
    canvas: Pixels
    box: Array
    detections: ImageDetections

    @property
    def score(self) -> float:
        """The median score: above a threshold, most placements are."""
        return float(np.median(self.scores))


@dataclass(frozen=True)
class FactorResult:
    """trials[step][portrait], in the order of the factor's steps and of the portraits."""

    factor: Factor
    trials: list[list[Trial]]

    def found(self, threshold: float) -> npt.NDArray[np.int64]:
        """In how many portraits each step's face is found, int64 [steps]."""
        return np.array([sum(trial.score > threshold for trial in row) for row in self.trials])

    def limit(self, threshold: float, faces: int) -> str | None:
        """The last step before the first at which fewer than `faces` are found; None if that is the first."""
        enough = self.found(threshold) >= faces
        count = len(enough) if enough.all() else int(enough.argmin())
        return self.factor.steps[count - 1].label if count else None


@dataclass(frozen=True)
class FaceFreeResult:
    """A photograph without a face: name, views uint8 [V, 256, 256], and what was found in each."""

    name: str
    views: Pixels
    detections: list[ImageDetections]

    def false_alarms(self, threshold: float) -> int:
        """How many detections score above the threshold, in all views."""
        return sum(int((found.scores > threshold).sum()) for found in self.detections)


def stress_test(
    detect: Detect, portraits: Sequence[Portrait], factors: Sequence[Factor], device: torch.device | str
) -> list[FactorResult]:
    """Tries every portrait at every step of every factor, in all placements."""
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
    """Runs the detector over photographs without faces.

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
    """The two portraits of installed packages, with the boxes drawn by hand."""
    return [
        Portrait(name, pixels, np.array(DRAWN_BOXES[name], np.float64))
        for name, pixels in gray_portraits().items()
    ]


def table(results: Sequence[FactorResult], threshold: float) -> str:
    """The limit of every factor for two portraits, as a table in Markdown."""
    lines = ["| what changes | steps | both faces found up to | one up to |", "| --- | --- | ---: | ---: |"]
    for result in results:
        steps = ", ".join(step.label for step in result.factor.steps)
        limits = [result.limit(threshold, faces) or "none" for faces in (2, 1)]
        lines.append(f"| {result.factor.name} | {steps} | {limits[0]} | {limits[1]} |")
    return "\n".join(lines)


def false_alarm_line(results: Sequence[FaceFreeResult], threshold: float) -> str:
    """How many false alarms there were, and in which photographs, as a sentence."""
    alarms = {result.name: result.false_alarms(threshold) for result in results}
    views = sum(len(result.views) for result in results)
    where = ", ".join(f"{name} {count}" for name, count in alarms.items() if count)
    return (
        f"False alarms above {threshold:g} in {views} views of {len(results)} photographs without a face: "
        f"{sum(alarms.values())}{f' ({where})' if where else ''}."
    )
