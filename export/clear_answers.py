"""Finds a picture in which what a detector answers is so clear that no rounding changes it.

Of a detector that a user brings, only the answers can be seen: what it compares inside is not known. So it is
asked for all that it finds in a drawn picture, several times: with its products rounded to TF32, the coarsest
arithmetic that a device uses unasked; with two bits less, which makes four times the error; and with an IoU
threshold a little lower and a little higher. Of the first detections that all these answers share, a score
threshold cuts off as many as are clear: no two scores, and none and the threshold, lie closer than four times
what TF32 moves them.

Of a detector with several classes, the pictures in which it finds most of them come first, and the one whose
clear detections are of most classes is taken.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lensbox.artifact.self_test import TOLERANCES
from lensbox.export.self_test_choice import Choice
from lensbox.export.self_test_images import draw_scene
from lensbox.export.tf32 import TF32_MANTISSA_BITS, OperandRounding
from lensbox.model import DetectorSpec
from lensbox.model.protocol_check import answer_faults

_PICTURES = 12
_PICTURES_WITH_CLASSES = 36
_IOU_THRESHOLDS = (0.5, 0.3)
_IOU_STEP = 0.02
_MAX_DETECTIONS = 20
_ENOUGH_DETECTIONS = 3
_COARSE_BITS, _COARSENESS = 2, 4.0  # so many fewer, and what they make of the error
# For detectors that multiply nothing, and so show no rounding.
_LEAST_GAP = 1e-4
# What TF32 may change is half of what the self-test allows a GPU.
_BOX_LIMIT = TOLERANCES["cuda"].boxes / 2
_SCORE_LIMIT = TOLERANCES["cuda"].scores / 2


class _Answer(NamedTuple):
    """Boxes float32 [n, 4] in pixels of the picture, scores float32 [n], labels int64 [n]."""

    boxes: Tensor
    scores: Tensor
    labels: Tensor


@dataclass(frozen=True)
class _Asking:
    """A detector, and a picture for it."""

    module: Any
    specification: DetectorSpec
    canvases: Tensor
    geometry: Tensor

    def answer(self, score_threshold: float, iou_threshold: float) -> _Answer:
        """Raises RuntimeError for an answer that breaks the protocol."""
        named = bool(self.specification.classes or self.specification.extras)
        method = self.module.detect_named if named else self.module.detect
        found = method(self.canvases, score_threshold, iou_threshold)
        if faults := answer_faults(found, self.specification, 1):
            raise RuntimeError(f"its answer to a drawn picture does not follow the protocol: {faults[0]}")
        outputs: Mapping[str, Tensor] = (
            found if named else dict(zip(_Answer._fields[:2], found, strict=False))
        )
        count = int(found["counts"][0] if named else found[2][0])
        scores = outputs["scores"][0, :count]
        labels = outputs["labels"][0, :count] if self.specification.classes else torch.zeros_like(scores)
        return _Answer(self.module.restore(outputs["boxes"], self.geometry)[0, :count], scores, labels)


def clearest_answers(
    module: Any, specification: DetectorSpec, mantissa_bits: int = TF32_MANTISSA_BITS
) -> Choice:
    """The choice for a deployed detector on the CPU in eval mode, without gradients.

    mantissa_bits: of the coarsest arithmetic that must not change it.
    Raises RuntimeError, saying what the closest try lacked, if no picture is clear.
    """
    best: Choice | None = None
    best_rank = (0, 0)
    reasons: list[str] = []
    thresholds = dict.fromkeys((specification.iou_threshold, *_IOU_THRESHOLDS))
    pictures = _pictures(module, specification)
    for classes, image, asking in pictures:
        for iou_threshold in thresholds:
            if best_rank[0] >= classes and best_rank[1] >= _ENOUGH_DETECTIONS:
                break
            found, reason = _try(asking, iou_threshold, mantissa_bits)
            if found is None:
                reasons.append(reason)
                continue
            score_threshold, labels = found
            rank = (len(labels.unique()), len(labels))
            if rank > best_rank:
                best, best_rank = Choice(image, score_threshold, iou_threshold, len(labels)), rank
    if best is None:
        most_often = max(reasons, key=reasons.count)
        raise RuntimeError(
            f"none of {len(pictures)} drawn pictures gives detections that are clear enough for a self-test: "
            f"{most_often}"
        )
    return best


class _Picture(NamedTuple):
    """A drawn picture, uint8 [3, H, W], and of how many classes the best detections in it are."""

    classes: int
    image: Tensor
    asking: _Asking


def _pictures(module: Any, specification: DetectorSpec) -> list[_Picture]:
    """Those with most classes first."""
    several = len(specification.classes) > 1
    pictures = []
    for seed in range(_PICTURES_WITH_CLASSES if several else _PICTURES):
        image = draw_scene(seed, specification.height, specification.width)
        asking = _Asking(module, specification, *module.preprocess([image]))
        classes = 1
        if several:
            labels = asking.answer(0.0, specification.iou_threshold).labels
            classes = max(1, len(labels[:_MAX_DETECTIONS].unique()))
        pictures.append(_Picture(classes, image, asking))
    return sorted(pictures, key=lambda picture: -picture.classes)


def _try(
    asking: _Asking, iou_threshold: float, mantissa_bits: int
) -> tuple[tuple[float, Tensor] | None, str]:
    """A score threshold and the labels of what is above it; or None, and the reason."""
    exact = asking.answer(0.0, iou_threshold)
    if len(exact.scores) == 0:
        return None, "it finds nothing, even at a score threshold of 0"
    inverted = _Asking(asking.module, asking.specification, 255 - asking.canvases, asking.geometry)
    if _alike(exact, inverted.answer(0.0, iou_threshold), 0.0, 0.0) == len(exact.scores):
        return None, "its answer is the same whatever a picture shows"
    answers = []
    for step in (-_IOU_STEP, _IOU_STEP):
        near = min(max(iou_threshold + step, 0.0), 1.0)
        answers.append((asking.answer(0.0, near), 0.0))
    for bits, part in ((mantissa_bits, 1.0), (mantissa_bits - _COARSE_BITS, _COARSENESS)):
        with OperandRounding(bits):
            answers.append((asking.answer(0.0, iou_threshold), part))
    shared = min(_alike(exact, answer, part * _BOX_LIMIT, part * _SCORE_LIMIT) for answer, part in answers)
    if shared == 0:
        return None, "its best detection moves too much under TF32, or with the IoU threshold"
    scores = [answer.scores for answer, _ in ((exact, 0.0), *answers)]
    for count in range(min(shared, _MAX_DETECTIONS), 0, -1):
        threshold = _threshold_between(scores, count)
        if threshold is not None and _holds(
            asking, exact, threshold, iou_threshold, count, mantissa_bits - _COARSE_BITS
        ):
            return (threshold, exact.labels[:count]), ""
    return None, "its scores lie too close to each other"


def _alike(exact: _Answer, other: _Answer, box_limit: float, score_limit: float) -> int:
    """How many of the first detections are the same in both, up to the limits."""
    count = min(len(exact.scores), len(other.scores))
    same = (exact.boxes[:count] - other.boxes[:count]).abs().amax(dim=1) <= box_limit
    same &= (exact.scores[:count] - other.scores[:count]).abs() <= score_limit
    same &= exact.labels[:count] == other.labels[:count]
    return int(same.int().cumprod(dim=0).sum())


def _threshold_between(scores: list[Tensor], count: int) -> float | None:
    """A score threshold after the first `count` detections of all answers; None where scores are too close.

    scores: of each answer, falling; those of the exact one first.
    """
    exact = scores[0]
    noise = max(float((exact[:count] - other[:count]).abs().max()) for other in scores)
    least = max(noise, _LEAST_GAP)
    if count > 1 and float((exact[: count - 1] - exact[1:count]).min()) < least:
        return None
    last = min(float(other[count - 1]) for other in scores)
    following = max((float(other[count]) for other in scores if len(other) > count), default=0.0)
    return (last + following) / 2 if last - following >= 2 * least else None


def _holds(
    asking: _Asking, exact: _Answer, threshold: float, iou_threshold: float, count: int, coarse_bits: int
) -> bool:
    """Whether the detector, asked with this threshold, gives just these detections, coarsely rounded, too."""
    answers = [(asking.answer(threshold, iou_threshold), 0.0)]
    with OperandRounding(coarse_bits):
        answers.append((asking.answer(threshold, iou_threshold), _COARSENESS))
    return all(
        len(answer.scores) == count == _alike(exact, answer, part * _BOX_LIMIT, part * _SCORE_LIMIT)
        for answer, part in answers
    )
