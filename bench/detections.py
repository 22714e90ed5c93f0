"""Compare the detections of a way with the expected ones, as sets: rounding may change their order."""

from lensbox.bench.runner import WrongAnswerError
from lensbox.runtime.detection_sets import Difference, Found, Limits


def require_same_detections(
    actual: Found, expected: Found, thresholds: tuple[float, float], limits: Limits
) -> None:
    """Raise WrongAnswerError if detections differ by more than the limits, by the rule of the self-test.

    thresholds: of score and IoU, at which both were found.
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
