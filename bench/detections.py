"""Compare detections with the expected ones, ignoring their order."""

from lensbox.bench.runner import WrongAnswerError
from lensbox.runtime.detection_sets import Difference, Found, Limits


def require_same_detections(
    actual: Found, expected: Found, thresholds: tuple[float, float], limits: Limits
) -> None:
    """Raise WrongAnswerError if detections differ by more than the limits, by the rule of the self-test.

    thresholds: the score and IoU thresholds that gave both sets of detections.
    """
    difference = Difference()
    difference.add(expected, actual, thresholds, limits, "the picture")
    if difference.unexplained:
        counts = f"expected {len(expected.scores)} faces, got {len(actual.scores)}"
        raise WrongAnswerError("; ".join([counts, *difference.unexplained]))
    if difference.exchanged > difference.allowed:
        raise WrongAnswerError(
            f"{difference.exchanged} faces came or went by rounding, at most {difference.allowed} of "
            f"{difference.expected} may"
        )
