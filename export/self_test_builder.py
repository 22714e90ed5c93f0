"""Builds the self-test of a detector: input and output that no rounding can change."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from lensbox.artifact.self_test import TOLERANCES, ExpectedExtra, SelfTest, Tolerance, max_error
from lensbox.export.clear_answers import clearest_answers
from lensbox.export.clear_predictions import clearest_predictions
from lensbox.export.self_test_choice import Choice
from lensbox.export.tf32 import TF32_MANTISSA_BITS, OperandRounding
from lensbox.export.wrapper import deployed
from lensbox.model import Detector, DetectorSpec, FaceDetector

# Two overlapping pairs, one disjoint, one box inside another, and a slot of padding.
_LOSS_PREDICTIONS = [[10, 10, 30.5, 31], [40, 5.25, 60, 25], [0, 0, 8, 8], [12, 20, 20, 30], [3, 4, 9, 9]]
_LOSS_TARGETS = [[12, 9, 33, 30], [42, 8, 58, 30], [20, 20, 28, 30], [8, 16, 24, 36], [0, 0, 0, 0]]

# Of values of a detector's own: what float32 and TF32 may change, as a part of the largest of them.
VALUE_TOLERANCES = {"cpu": 1e-3, "cuda": 2e-2}
# TF32 on a device sums in another order than its imitation: allow several times what that one changes.
_TF32_SLACK = 4.0


def build_self_test(
    detector: Detector, converted: Any = None, mantissa_bits: int = TF32_MANTISSA_BITS
) -> SelfTest:
    """The self-test of a detector on the CPU in eval mode; its expectations come from eager execution.

    converted: what it became in a reduced precision, with the same methods; the expectations are then what
    this one answers, and the tolerances allow for twice its distance from float32. mantissa_bits: of that
    precision. Raises RuntimeError if no clear test is found.
    """
    module: Any = deployed(detector)
    with torch.no_grad(), one_thread():
        if isinstance(detector, FaceDetector):
            choice = clearest_predictions(detector, mantissa_bits)
        else:
            choice = clearest_answers(module, detector.specification, mantissa_bits)
        test = _self_test(module, detector.specification, choice)
        if len(test.scores) != choice.count:
            raise RuntimeError("its scores lie too close to 0 or 1 for a threshold between them")
        if converted is None:
            return test
        return _widened(_self_test(converted, detector.specification, choice), test)


def _self_test(module: Any, specification: DetectorSpec, choice: Choice) -> SelfTest:
    canvases, geometry = module.preprocess([choice.image])
    boxes, scores, counts = module.detect(canvases, choice.score_threshold, choice.iou_threshold)
    count = int(counts[0])
    predictions = torch.tensor(_LOSS_PREDICTIONS)
    targets = torch.tensor(_LOSS_TARGETS, dtype=torch.float32)
    return SelfTest(
        image=choice.image,
        score_threshold=choice.score_threshold,
        iou_threshold=choice.iou_threshold,
        boxes=module.restore(boxes, geometry)[0, :count],
        scores=scores[0, :count],
        loss_predictions=predictions,
        loss_targets=targets,
        loss=float(module.loss(predictions, targets)),
        tolerances=TOLERANCES,
        **_labels_and_extras(module, specification, canvases, geometry, choice),
    )


def _widened(test: SelfTest, exact: SelfTest) -> SelfTest:
    """The test with tolerances for devices whose rounding is as far from float32, in the other direction."""
    same = test.boxes.shape == exact.boxes.shape
    if same and test.labels is not None and exact.labels is not None:
        same = torch.equal(test.labels, exact.labels)
    if not same:
        raise RuntimeError("in the self-test's picture it finds other things than in float32")
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


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Makes sums, and so the expectations, independent of the number of cores; the pictures are few."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _labels_and_extras(
    module: Any, specification: DetectorSpec, canvases: Tensor, geometry: Tensor, choice: Choice
) -> dict[str, Any]:
    if not specification.classes and not specification.extras:
        return {}

    def named() -> Mapping[str, Tensor]:
        found: Mapping[str, Tensor] = module.detect_named(
            canvases, choice.score_threshold, choice.iou_threshold
        )
        points = {name: module.restore_points(found[name], geometry) for name in specification.points}
        return {
            name: value[0, : found["counts"][0]]
            for name, value in {**found, **points}.items()
            if name != "counts"
        }

    exact = named()
    with OperandRounding():
        rounded = named()
    return {
        "labels": exact["labels"] if specification.classes else None,
        "extras": {
            name: _expected_extra(name in specification.points, exact[name], rounded[name])
            for name in specification.extras
        },
    }


def _expected_extra(points: bool, exact: Tensor, rounded: Tensor) -> ExpectedExtra:
    """The values of the `count` detections; whole numbers must be equal where TF32 does not change them."""
    if points:
        limits = {device: tolerance.boxes for device, tolerance in TOLERANCES.items()}
        return ExpectedExtra("points", exact.double(), limits)
    largest = float(exact.abs().max()) if exact.is_floating_point() else 0.0
    limits = {device: part * largest for device, part in VALUE_TOLERANCES.items()}
    limits["cuda"] = max(limits["cuda"], _TF32_SLACK * float((rounded - exact).abs().max()))
    return ExpectedExtra("values", exact.double(), limits)
