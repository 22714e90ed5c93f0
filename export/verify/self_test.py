"""Build the self-test of a detector: a picture and the detector's answers."""

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lensbox.common.errors import ArtifactError
from lensbox.export.detector.wrapper import DetectorWrapper
from lensbox.export.verify.pictures import Fitted, drawn, fitted, shrunk
from lensbox.export.verify.precision import BFLOAT16_MANTISSA_BITS, TF32_MANTISSA_BITS, operand_rounding
from lensbox.export.verify.reference import VALUES, one_thread
from lensbox.model import Detector, DetectorSpec
from lensbox.runtime.detect.detection import Detections, detections_in
from lensbox.runtime.detect.self_test import outputs_in_picture
from lensbox.runtime.file.self_test import TOLERANCES, Expected, ExpectedLoss, SelfTest, Tolerance, Tolerances
from lensbox.runtime.formats.detect_only import Run

_logger = logging.getLogger(__name__)

# Two overlapping pairs, a disjoint pair, a pair with one box inside the other, and a padded slot.
_LOSS_PREDICTIONS = [[10, 10, 30.5, 31], [40, 5.25, 60, 25], [0, 0, 8, 8], [12, 20, 20, 30], [3, 4, 9, 9]]
_LOSS_TARGETS = [[12, 9, 33, 30], [42, 8, 58, 30], [20, 20, 28, 30], [8, 16, 24, 36], [0, 0, 0, 0]]

_MAX_DETECTIONS = 20
_MOST_NAMES = 10  # class names in a message
_LEAST_GAP = 1e-6
_GAP = 4.0  # distance between the last detection and the threshold, in units of rounding noise
# TF32 on a device sums in another order than the imitation: allow a multiple of the imitation's changes.
_TF32_SLACK = 4.0


def build_self_test(
    detector: Detector,
    dtype: str = "float32",
    drawn_pictures: Fitted | None = None,
    pictures: Sequence[Tensor] = (),
) -> SelfTest:
    """Return the self-test of a detector on the CPU in eval mode; eager execution gives the expectations.

    dtype: the precision whose rounding is to decide about no detection. pictures: uint8 [C, H, W], in place
    of drawn pictures; the artifact holds one of them, no larger than the canvas. Raise ArtifactError for a
    detector that finds nothing in any picture.
    """
    module, specification = DetectorWrapper(detector), detector.specification
    if pictures:
        shown = fitted(detector, [shrunk(picture, specification) for picture in pictures])
    else:
        shown = drawn_pictures or drawn(detector)
    with torch.no_grad(), one_thread():
        image, canvases = _choose(module, specification, shown)
        bits = BFLOAT16_MANTISSA_BITS if dtype == "bfloat16" else TF32_MANTISSA_BITS
        threshold = _threshold(module, specification, canvases, bits)
        test = _self_test(module, specification, image, threshold)
    _report_coverage(specification.classes, test.expected.labels)
    return test


def reduced_self_test(detector: Detector, exact: SelfTest, detect: Run) -> SelfTest:
    """Return a self-test with the answers of a reduced precision.

    The tolerances allow twice their distance from float32. exact: with the answers in float32. detect: in
    the reduced precision, from and to the CPU. Raise ArtifactError for other detections than in float32.
    """
    module: Any = DetectorWrapper(detector)
    module.detect = detect
    with torch.no_grad(), one_thread():
        test = _self_test(module, detector.specification, exact.image, exact.score_threshold)
    found, wanted = test.expected, exact.expected
    same = found.boxes.shape == wanted.boxes.shape
    if same and found.labels is not None and wanted.labels is not None:
        same = torch.equal(found.labels, wanted.labels)
    if not same:
        raise ArtifactError(
            "the detector cannot be exported: its detections in the self-test's picture differ from those in "
            "float32"
        )
    boxes, scores = 2 * _max_error(found.boxes, wanted.boxes), 2 * _max_error(found.scores, wanted.scores)
    extras = {name: 2 * _max_error(found.extras[name], values) for name, values in wanted.extras.items()}

    def widened(limit: Tolerance) -> Tolerance:
        wider = {name: max(value, extras[name]) for name, value in limit.extras.items()}
        return dataclasses.replace(
            limit, boxes=max(limit.boxes, boxes), scores=max(limit.scores, scores), extras=wider
        )

    tolerances = Tolerances(widened(test.tolerance.cpu), widened(test.tolerance.cuda))
    return dataclasses.replace(test, tolerance=tolerances)


def _choose(module: Any, specification: DetectorSpec, shown: Fitted) -> tuple[Tensor, Tensor]:
    """Return the first picture with detections of the most classes, and its canvas, uint8 [1, c, h, w].

    If nothing is found at the detector's threshold, detections of any score count.
    """
    most = max(len(specification.classes), 1)
    for score in (specification.score_threshold, 0.0):
        classes: list[int] = []  # in each picture
        for canvas in shown.canvases:
            found = detections_in(module.detect(canvas[None], score, specification.iou_threshold))
            labels = torch.zeros_like(found.scores) if found.labels is None else found.labels
            classes.append(len(labels[:_MAX_DETECTIONS].unique()))
            if classes[-1] >= most:
                break
        if max(classes) > 0:
            best = classes.index(max(classes))
            return shown.pictures[best], shown.canvases[best : best + 1]
    raise ArtifactError(
        "the detector cannot be exported: it finds nothing in any picture, even at a score threshold of 0, "
        "so a self-test is not possible. Add photographs with objects: --pictures photo.jpg "
        "--self-test-from-pictures"
    )


def _threshold(module: Any, specification: DetectorSpec, canvases: Tensor, bits: int) -> float:
    """Return a score threshold for at most 20 detections, if possible one that rounding does not affect.

    The threshold lies between two scores: between the last ones that differ by more than their rounding,
    else between those that differ most.
    """
    thresholds = 0.0, specification.iou_threshold
    exact = detections_in(module.detect(canvases, *thresholds))
    with operand_rounding(bits):
        rounded = detections_in(module.detect(canvases, *thresholds))
    alike = _alike(exact, rounded)
    noise = _max_error(rounded.scores[:alike], exact.scores[:alike]) if alike else 1.0
    after = torch.cat([exact.scores[1:], torch.zeros(1)])  # the next score
    gaps = (exact.scores - after)[:_MAX_DETECTIONS]
    clear = (gaps[:alike] > max(_GAP * noise, _LEAST_GAP)).nonzero()
    if len(clear) == 0:
        _logger.warning(
            "the detector's scores lie so close together that rounding decides which detections are found: "
            "the self-test is weaker"
        )
    last = int(clear[-1]) if len(clear) else int(gaps.argmax())
    threshold = float((exact.scores[last].double() + after[last].double()) / 2)
    return threshold if float(gaps[last]) > 0 else threshold * (1 - 1e-4)  # all scores tie


def _alike(exact: Detections, other: Detections) -> int:
    """Return how many leading detections are equal in both, within the tolerance of a GPU."""
    count, most = min(len(exact.scores), len(other.scores)), TOLERANCES.cuda
    same = (exact.boxes[:count] - other.boxes[:count]).abs().amax(dim=1) <= most.boxes
    same &= (exact.scores[:count] - other.scores[:count]).abs() <= most.scores
    if exact.labels is not None and other.labels is not None:
        same &= exact.labels[:count] == other.labels[:count]
    return int(same.int().cumprod(dim=0).sum())


def _self_test(module: Any, specification: DetectorSpec, image: Tensor, threshold: float) -> SelfTest:
    """Return the self-test with the module's answers for one picture."""
    thresholds = threshold, specification.iou_threshold
    exact = detections_in(outputs_in_picture(module, image, thresholds, specification.points))
    changes = {}  # of further outputs, by TF32
    if specification.extras:
        with operand_rounding():
            rounded = detections_in(outputs_in_picture(module, image, thresholds, specification.points))
        if len(rounded.scores) == len(exact.scores):
            changes = {name: _max_error(rounded.extras[name], value) for name, value in exact.extras.items()}

    def tolerance(device: str) -> Tolerance:
        base, extras = TOLERANCES.on(device), {}
        for name, values in exact.extras.items():
            by_tf32 = _TF32_SLACK * changes.get(name, 0.0) if device == "cuda" else 0.0
            # Integers must be equal unless TF32 changes them.
            largest = float(values.abs().max()) if values.is_floating_point() and values.numel() else 0.0
            limit = base.boxes if name in specification.points else max(VALUES[device] * largest, by_tf32)
            extras[name] = limit
        return dataclasses.replace(base, extras=extras)

    extras = {name: values.double() for name, values in exact.extras.items()}
    predictions, targets = torch.tensor(_LOSS_PREDICTIONS), torch.tensor(_LOSS_TARGETS, dtype=torch.float32)
    return SelfTest(
        image,
        *thresholds,
        Expected(exact.boxes, exact.scores, exact.labels, extras),
        ExpectedLoss(predictions, targets, float(module.loss(predictions, targets))),
        Tolerances(tolerance("cpu"), tolerance("cuda")),
    )


def _max_error(actual: Tensor, expected: Tensor) -> float:
    """Return the largest absolute difference: 0 without elements, NaN if an element is NaN."""
    return float((actual - expected).abs().max()) if expected.numel() else 0.0


def _report_coverage(classes: Sequence[str], labels: Tensor | None) -> None:
    """Log the classes without a detection in the self-test."""
    if labels is None:
        return
    seen = set(labels.tolist())
    absent = [name for label, name in enumerate(classes) if label not in seen]
    if absent:
        more = len(absent) - _MOST_NAMES
        names = ", ".join(absent[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        _logger.info("the self-test covers %d of %d classes, not %s", len(seen), len(classes), names)
