"""Compare the canvases and boxes of a way with the reference, before it is timed."""

import torch
from torch import Tensor

from lensbox.artifact.metadata import Canvas
from lensbox.artifact.self_test import IOU_TOLERANCES, TOLERANCES
from lensbox.bench.detections import require_same_detections
from lensbox.bench.photo import reference
from lensbox.bench.runner import WrongAnswerError
from lensbox.ops.torchvision_api import box_iou
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.detection import Detections
from lensbox.runtime.detection_sets import Found, Limits

# A peer decodes and resizes differently: faces with a low score may be lost, and boxes move a little.
_CLEAR_SCORE = 0.7
_SAME_FACE = 0.5  # IoU


def expected_canvas(file: bytes, canvas: Canvas) -> Tensor:
    """Return the reference's canvas, uint8 [1, 1, H, W] on the CPU."""
    return reference.canvas_of(reference.decoded(file, canvas), canvas)[None]


def expected_detections(file: bytes, artifact: Artifact) -> Detections:
    """Return the detections of the artifact's network on the reference's canvas."""
    return detections_on(expected_canvas(file, artifact.metadata.canvas), file, artifact)


def detections_on(canvases: Tensor, file: bytes, artifact: Artifact) -> Detections:
    """Run the artifact's network on one canvas, and restore its boxes as the reference does."""
    boxes, scores, counts = artifact.detect(canvases)
    count = int(counts[0])
    restored = reference.restored(boxes[0, :count], reference.upright_size(file), artifact.metadata.canvas)
    return Detections(restored, scores[0, :count].cpu())


def require_same_bytes(name: str, actual: Tensor, expected: Tensor) -> None:
    """Raise WrongAnswerError if a byte differs."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise WrongAnswerError(
            f"the {name} is {actual.dtype} {list(actual.shape)}, not {expected.dtype} {list(expected.shape)}"
        )
    differing = int((actual.cpu() != expected).sum())
    if differing:
        raise WrongAnswerError(f"the {name} differs from Pillow's in {differing} of {expected.numel()} bytes")


def require_near(name: str, actual: Tensor, expected: Tensor, mean: float, most: float) -> None:
    """Raise WrongAnswerError if gray levels differ by more than `mean` on average or `most` anywhere."""
    if actual.shape != expected.shape:
        raise WrongAnswerError(f"the {name} has the shape {list(actual.shape)}, not {list(expected.shape)}")
    difference = (actual.cpu().float() - expected.float()).abs()
    if not (float(difference.mean()) <= mean and float(difference.max()) <= most):
        raise WrongAnswerError(
            f"the {name} differs by {float(difference.mean()):.3g} gray levels on average and "
            f"{float(difference.max()):.3g} at most; {mean:g} and {most:g} are allowed"
        )


def require_equal_detections(
    actual: Detections, expected: Detections, artifact: Artifact, pixels: float = 1.0
) -> None:
    """Raise WrongAnswerError if detections differ by more than rounding on the artifact's device.

    pixels: number of pixels of the photograph in one of the canvas.
    """
    device, metadata = artifact.device.type, artifact.metadata
    limits = Limits(
        TOLERANCES[device].boxes * pixels, TOLERANCES[device].scores, IOU_TOLERANCES[device], extras={}
    )
    thresholds = metadata.score_threshold, metadata.iou_threshold
    require_same_detections(_found(actual), _found(expected), thresholds, limits)


def _found(detections: Detections) -> Found:
    labels = torch.zeros(len(detections.scores), dtype=torch.int64)
    return Found(detections.boxes, detections.scores, labels, full=False, extras={})


def require_same_faces(actual: Detections, expected: Detections) -> None:
    """Raise WrongAnswerError if a face with a clear score has no counterpart."""
    for found, others, what in ((expected, actual, "is not found"), (actual, expected, "was not expected")):
        clear = found.scores > _CLEAR_SCORE
        overlap = box_iou(found.boxes[clear], others.boxes)
        best = overlap.max(1).values if len(others.boxes) else torch.zeros(int(clear.sum()))
        for box, score, iou in zip(found.boxes[clear], found.scores[clear], best, strict=True):
            if not float(iou) >= _SAME_FACE:
                at = ", ".join(f"{value:.0f}" for value in box.tolist())
                raise WrongAnswerError(f"a face at ({at}) px with a score of {float(score):.2f} {what}")
