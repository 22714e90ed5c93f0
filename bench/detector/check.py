"""Is a way's answer that of the eager detector? Asked before it is timed."""

import torch
from torch import Tensor

from lensbox.artifact.self_test import TOLERANCES, Tolerance, max_error, tolerance_failures
from lensbox.bench.check import WrongAnswerError
from lensbox.bench.detector.subject import Subject
from lensbox.bench.detector.ways import Call, Way
from lensbox.export.predictions_check import prediction_failures

_ROUNDED = Tolerance(boxes=3.0, scores=0.05, loss=0.0)  # for eight bits of mantissa


def check_way(way: Way, call: Call, subject: Subject) -> None:
    """Raises WrongAnswerError. The yardstick has no answer to be checked."""
    if way.computes == "yardstick":
        return
    with torch.no_grad():
        answer = tuple(torch.as_tensor(value) for value in call())
        if way.computes == "network":
            failures = prediction_failures((answer[0], answer[1]), subject.detector(subject.canvas))
        else:
            thresholds = (subject.score_threshold, subject.iou_threshold)
            expected = subject.detector.detect(subject.canvas, *thresholds)
            failures = _detection_failures(answer, expected, _ROUNDED if way.rounds else TOLERANCES["cpu"])
    if failures:
        raise WrongAnswerError("; ".join(failures))


def _detection_failures(
    actual: tuple[Tensor, ...], expected: tuple[Tensor, ...], tolerance: Tolerance
) -> list[str]:
    boxes, scores, counts = actual
    if not torch.equal(counts, expected[2]):
        return [f"{counts.tolist()} faces are found, {expected[2].tolist()} were expected"]
    return tolerance_failures(
        (
            ("boxes", "px", max_error(boxes, expected[0]), tolerance.boxes),
            ("scores", "", max_error(scores, expected[1]), tolerance.scores),
        )
    )
