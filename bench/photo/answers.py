"""How far answers move when JPEG files are decoded at a reduced scale and without their colors."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from lensbox.bench.photo.photographs import Photograph
from lensbox.bench.photo.subject import Subject
from lensbox.ops.torchvision_api import box_iou
from lensbox.runtime.detection import Detections
from lensbox.runtime.image_io import read_image

_SAME_FACE = 0.5  # IoU


@dataclass(frozen=True)
class Movement:
    """Of one photograph, against decoding it in full and in color.

    reduction: r of the scale 1/r. found: faces in full decoding; matched: those that are found again; new:
    those that are found in reduced decoding alone. box: the largest movement of a side, in pixels of the
    photograph; canvas_box: in those of the canvas. score: the largest difference. unmatched_score: the best
    score of a face that only one of the two has, 0 if there is none.
    """

    photograph: str
    reduction: int
    found: int
    matched: int
    new: int
    box: float
    canvas_box: float
    score: float
    unmatched_score: float


def movements(subject: Subject, photographs: Sequence[Photograph]) -> list[Movement]:
    return [_movement(subject, photograph) for photograph in photographs]


def _movement(subject: Subject, photograph: Photograph) -> Movement:
    photo = subject.artifact.read_photo(photograph.file)
    reduced = subject.artifact.detect_image(photo)
    full = subject.artifact.detect_image(read_image(photograph.file))
    pairs = _matched(full, reduced)
    box = max((_largest(full.boxes[i], reduced.boxes[j]) for i, j in pairs), default=0.0)
    lost = _scores_without(full, [index for index, _ in pairs])
    new = _scores_without(reduced, [index for _, index in pairs])
    scale = min(subject.canvas.width / photo.width, subject.canvas.height / photo.height)
    return Movement(
        photograph=photograph.name,
        reduction=round((photo.window[2] - photo.window[0]) / photo.pixels.shape[2]),
        found=len(full.boxes),
        matched=len(pairs),
        new=len(new),
        box=box,
        canvas_box=box * scale,
        score=max((_largest(full.scores[i], reduced.scores[j]) for i, j in pairs), default=0.0),
        unmatched_score=max(lost + new, default=0.0),
    )


def _scores_without(found: Detections, matched: Sequence[int]) -> list[float]:
    return [float(score) for index, score in enumerate(found.scores) if index not in matched]


def _largest(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


def _matched(one: Detections, other: Detections) -> list[tuple[int, int]]:
    """Each face of one, best first, with the face of the other that overlaps it most, if it is still free."""
    pairs: list[tuple[int, int]] = []
    if not len(one.boxes) or not len(other.boxes):
        return pairs
    overlap = box_iou(one.boxes, other.boxes)
    for index, row in enumerate(overlap):
        best = int(row.argmax())
        if float(row[best]) >= _SAME_FACE:
            pairs.append((index, best))
            overlap[:, best] = 0
    return pairs
