"""Are a way's canvases and boxes right? Asked before it is timed."""

import torch
from torch import Tensor

from lensbox.artifact.self_test import TOLERANCES, max_error, tolerance_failures
from lensbox.bench.check import WrongAnswerError
from lensbox.bench.photo import reference
from lensbox.bench.photo.subject import Subject
from lensbox.ops.torchvision_api import box_iou
from lensbox.runtime.detection import Detections

# A peer decodes and resizes in its own way: faces that are hardly found may be lost, others move a little.
_CLEAR_SCORE = 0.7
_SAME_FACE = 0.5  # IoU


def expected_canvas(file: bytes, subject: Subject) -> Tensor:
    """uint8 [1, 1, H, W], on the CPU."""
    return reference.canvas_of(reference.decoded(file, subject.canvas), subject.canvas)[None]


def expected_detections(file: bytes, subject: Subject) -> Detections:
    """Of the artifact's network on the canvas of the reference."""
    boxes, scores, counts = subject.artifact.detect(expected_canvas(file, subject))
    count = int(counts[0])
    restored = reference.restored(boxes[0, :count], reference.upright_size(file), subject.canvas)
    return Detections(restored, scores[0, :count].cpu())


def require_same_bytes(name: str, actual: Tensor, expected: Tensor) -> None:
    """Raises WrongAnswerError."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise WrongAnswerError(
            f"the {name} is {actual.dtype} {list(actual.shape)}, not {expected.dtype} {list(expected.shape)}"
        )
    differing = int((actual.cpu() != expected).sum())
    if differing:
        raise WrongAnswerError(f"the {name} differs from Pillow's in {differing} of {expected.numel()} bytes")


def require_near(name: str, actual: Tensor, expected: Tensor, mean: float, most: float) -> None:
    """mean, most: gray levels by which they may differ on average and anywhere. Raises WrongAnswerError."""
    if actual.shape != expected.shape:
        raise WrongAnswerError(f"the {name} has the shape {list(actual.shape)}, not {list(expected.shape)}")
    difference = (actual.cpu().float() - expected.float()).abs()
    if not (float(difference.mean()) <= mean and float(difference.max()) <= most):
        raise WrongAnswerError(
            f"the {name} differs by {float(difference.mean()):.3g} gray levels on average and "
            f"{float(difference.max()):.3g} at most; {mean:g} and {most:g} are allowed"
        )


def require_equal_detections(
    actual: Detections, expected: Detections, subject: Subject, pixels: float = 1.0
) -> None:
    """Up to rounding. pixels: of the photograph in one of the canvas. Raises WrongAnswerError."""
    if len(actual.boxes) != len(expected.boxes):
        raise WrongAnswerError(f"{len(actual.boxes)} faces are found, {len(expected.boxes)} were expected")
    tolerance = TOLERANCES[subject.device.type]
    failures = tolerance_failures(
        (
            ("boxes", " px", max_error(actual.boxes, expected.boxes), tolerance.boxes * pixels),
            ("scores", "", max_error(actual.scores, expected.scores), tolerance.scores),
        )
    )
    if failures:
        raise WrongAnswerError("; ".join(failures))


def require_same_faces(actual: Detections, expected: Detections) -> None:
    """Every clear face of one has one of the other where it is. Raises WrongAnswerError."""
    for found, others, what in (
        (expected, actual, "is not found"),
        (actual, expected, "was not expected"),
    ):
        clear = found.scores > _CLEAR_SCORE
        overlap = box_iou(found.boxes[clear], others.boxes)
        best = overlap.max(1).values if len(others.boxes) else torch.zeros(int(clear.sum()))
        for box, score, iou in zip(found.boxes[clear], found.scores[clear], best, strict=True):
            if not float(iou) >= _SAME_FACE:
                at = ", ".join(f"{value:.0f}" for value in box.tolist())
                raise WrongAnswerError(f"a face at ({at}) px with a score of {float(score):.2f} {what}")
