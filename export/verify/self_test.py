"""Build the self-test of a detector: a drawn picture, and what the detector finds in it."""

import dataclasses
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lensbox.artifact.self_test import TOLERANCES, ExpectedExtra, SelfTest, Tolerance, max_error
from lensbox.common.errors import ArtifactError
from lensbox.export.verify.pictures import draw_scene, drawn_pictures
from lensbox.export.verify.precision import MANTISSA_BITS, OperandRounding
from lensbox.export.verify.reference import one_thread
from lensbox.export.verify.tolerances import TOLERANCES as PARTS
from lensbox.export.wrapper import deployed
from lensbox.model import Detector, DetectorSpec
from lensbox.model.protocol_check import Answer, named
from lensbox.runtime.detection_sets import Found, found_in

_logger = logging.getLogger(__name__)

# Two overlapping pairs, one disjoint, one box inside another, and a slot of padding.
_LOSS_PREDICTIONS = [[10, 10, 30.5, 31], [40, 5.25, 60, 25], [0, 0, 8, 8], [12, 20, 20, 30], [3, 4, 9, 9]]
_LOSS_TARGETS = [[12, 9, 33, 30], [42, 8, 58, 30], [20, 20, 28, 30], [8, 16, 24, 36], [0, 0, 0, 0]]

_MAX_DETECTIONS = 20
_MORE_SCENES = 6, 30  # seeds that the pictures of every comparison do not have
_ENOUGH_DETECTIONS = 5
_MOST_SECONDS = 20.0  # of looking for a better picture
_MOST_NAMES = 10  # of classes, in a message
_IOU_STEP = 0.02  # by which another IoU threshold must change nothing
_LEAST_GAP = 1e-6
_GAP = 4.0  # what lies between the last detection and the threshold, in units of what rounding changes
# TF32 on a device sums in another order than its imitation: allow several times what that one changes.
_TF32_SLACK = 4.0


class _Choice(NamedTuple):
    """A picture, uint8 [C, H, W], and thresholds for a self-test; see `_rank`."""

    image: Tensor
    score_threshold: float
    iou_threshold: float
    rank: tuple[int, ...]


def build_self_test(detector: Detector, dtype: str = "float32", converted: Any = None) -> SelfTest:
    """Return the self-test of a detector on the CPU in eval mode; expectations come from eager execution.

    converted: the detector in a reduced precision, with the same methods. The expectations are then its
    answers, and the tolerances allow for twice its distance from float32. Raises ArtifactError for a detector
    that finds nothing in any drawn picture.
    """
    module: Any = deployed(detector)
    specification = detector.specification
    with torch.no_grad(), one_thread():
        choice = _choose(module, specification, MANTISSA_BITS[dtype])
        test = _self_test(module, specification, choice)
        if converted is not None:
            test = _widened(_self_test(converted, specification, choice), test)
    _report_coverage(specification.classes, test)
    return test


def _choose(module: Any, specification: DetectorSpec, bits: int) -> _Choice:
    """Choose among the drawn pictures one whose detections rounding does not change, with most classes."""
    best: _Choice | None = None
    start = time.perf_counter()
    enough = (1, min(len(specification.classes), _MAX_DETECTIONS) or 1, _ENOUGH_DETECTIONS)
    for image in _pictures(specification):
        canvases, _ = module.preprocess([image])
        choice = _try(module, specification, image, canvases, bits)
        if choice is not None and (best is None or choice.rank > best.rank):
            best = choice
            if all(has >= wanted for has, wanted in zip(best.rank, enough, strict=True)):
                break
        if best is not None and time.perf_counter() - start > _MOST_SECONDS:
            _logger.info("the detector is slow: the best of the pictures so far becomes the self-test")
            break
    if best is None:
        raise ArtifactError(
            "the detector cannot be exported: it finds nothing in any drawn picture, even at a score "
            "threshold of 0, so that there is nothing to test"
        )
    if not best.rank[0]:
        _logger.warning(
            "the detector's scores lie so close together that rounding decides what is found: the self-test "
            "tells less"
        )
    return best


def _pictures(specification: DetectorSpec) -> Iterator[Tensor]:
    """Yield the drawn pictures, and more scenes for a detector with several classes."""
    yield from drawn_pictures(specification)
    if len(specification.classes) > 1:
        for seed in range(*_MORE_SCENES):
            yield draw_scene(seed, specification.height, specification.width)


def _try(
    module: Any, specification: DetectorSpec, image: Tensor, canvases: Tensor, bits: int
) -> _Choice | None:
    """Choose a threshold for one picture; None where nothing is found."""
    iou = specification.iou_threshold

    def found(iou_threshold: float) -> Found:
        return found_in(_answer(module, specification, canvases, 0.0, iou_threshold), None)

    exact = found(iou)
    if len(exact.scores) == 0:
        return None
    with OperandRounding(bits):
        rounded = found(iou)
    others = (rounded, found(max(iou - _IOU_STEP, 0.0)), found(min(iou + _IOU_STEP, 1.0)))
    alike = min(_alike(exact, other) for other in others)
    common = exact.scores[:alike], rounded.scores[:alike]
    noise = float((common[0] - common[1]).abs().max()) if alike else 1.0
    after = torch.cat([exact.scores[1:], torch.zeros(1)])
    gaps = (exact.scores - after)[:_MAX_DETECTIONS]
    clear = (gaps[:alike] > max(_GAP * noise, _LEAST_GAP)).nonzero()
    last = int(clear[-1]) if len(clear) else int(gaps.argmax())
    threshold = float((exact.scores[last].double() + after[last].double()) / 2)
    if float(gaps[last]) == 0:  # all scores are the same
        threshold *= 1 - 1e-4
    classes = len(exact.labels[: last + 1].unique())
    return _Choice(image, threshold, iou, (int(len(clear) > 0), classes, last + 1))


def _alike(exact: Found, other: Found) -> int:
    """Return how many of the first detections are the same in both, within the limits of a GPU."""
    count = min(len(exact.scores), len(other.scores))
    limits = TOLERANCES["cuda"]
    same = (exact.boxes[:count] - other.boxes[:count]).abs().amax(dim=1) <= limits.boxes
    same &= (exact.scores[:count] - other.scores[:count]).abs() <= limits.scores
    same &= exact.labels[:count] == other.labels[:count]
    return int(same.int().cumprod(dim=0).sum())


def _answer(
    module: Any, specification: DetectorSpec, canvases: Tensor, score_threshold: float, iou_threshold: float
) -> Answer:
    is_named = bool(specification.classes or specification.extras)
    method = module.detect_named if is_named else module.detect
    return named(method(canvases, score_threshold, iou_threshold))


def _self_test(module: Any, specification: DetectorSpec, choice: _Choice) -> SelfTest:
    canvases, geometry = module.preprocess([choice.image])
    predictions = torch.tensor(_LOSS_PREDICTIONS)
    targets = torch.tensor(_LOSS_TARGETS, dtype=torch.float32)

    def outputs() -> dict[str, Tensor]:
        found = _answer(module, specification, canvases, choice.score_threshold, choice.iou_threshold)
        points = {name: module.restore_points(found[name], geometry) for name in specification.points}
        restored: Mapping[str, Tensor] = {
            **found,
            **points,
            "boxes": module.restore(found["boxes"], geometry),
        }
        count = int(found["counts"][0])
        return {name: value[0, :count] for name, value in restored.items() if name != "counts"}

    exact = outputs()
    with OperandRounding():
        rounded = outputs() if specification.extras else exact
    return SelfTest(
        image=choice.image,
        score_threshold=choice.score_threshold,
        iou_threshold=choice.iou_threshold,
        boxes=exact["boxes"],
        scores=exact["scores"],
        loss_predictions=predictions,
        loss_targets=targets,
        loss=float(module.loss(predictions, targets)),
        tolerances=TOLERANCES,
        labels=exact["labels"] if specification.classes else None,
        extras={
            name: _expected_extra(name in specification.points, exact[name], rounded[name])
            for name in specification.extras
        },
    )


def _expected_extra(points: bool, exact: Tensor, rounded: Tensor) -> ExpectedExtra:
    """Return the values of the detections; whole numbers must be equal where TF32 does not change them."""
    if points:
        limits = {device: tolerance.boxes for device, tolerance in TOLERANCES.items()}
        return ExpectedExtra("points", exact.double(), limits)
    largest = float(exact.abs().max()) if exact.is_floating_point() and exact.numel() else 0.0
    limits = {device: PARTS[device].values * largest for device in TOLERANCES}
    if exact.shape == rounded.shape:
        limits["cuda"] = max(limits["cuda"], _TF32_SLACK * max_error(rounded, exact))
    return ExpectedExtra("values", exact.double(), limits)


def _widened(test: SelfTest, exact: SelfTest) -> SelfTest:
    """Return the test with tolerances for devices whose rounding goes as far in the other direction."""
    same = test.boxes.shape == exact.boxes.shape
    if same and test.labels is not None and exact.labels is not None:
        same = torch.equal(test.labels, exact.labels)
    if not same:
        raise ArtifactError(
            "the detector cannot be exported: in the self-test's picture it finds other things than in "
            "float32"
        )
    boxes, scores = 2 * max_error(test.boxes, exact.boxes), 2 * max_error(test.scores, exact.scores)
    tolerances = {
        device: Tolerance(max(limit.boxes, boxes), max(limit.scores, scores), limit.loss)
        for device, limit in test.tolerances.items()
    }
    extras = {}
    for name, extra in test.extras.items():
        error = 2 * max_error(extra.values, exact.extras[name].values)
        limits = {device: max(limit, error) for device, limit in extra.tolerances.items()}
        extras[name] = dataclasses.replace(extra, tolerances=limits)
    return dataclasses.replace(test, tolerances=tolerances, extras=extras)


def _report_coverage(classes: Sequence[str], test: SelfTest) -> None:
    """Log the classes of which the self-test has no detection."""
    if test.labels is None:
        return
    seen = set(test.labels.tolist())
    absent = [name for label, name in enumerate(classes) if label not in seen]
    if absent:
        more = len(absent) - _MOST_NAMES
        names = ", ".join(absent[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        _logger.info("the self-test covers %d of %d classes, not %s", len(seen), len(classes), names)
