"""Finds a picture in which a detector's raw predictions are so clear that no rounding changes what it finds.

A detector decides by comparing numbers: scores with each other and with the threshold, overlaps with the IoU
threshold. A test with a close comparison would fail on another device for no fault of the artifact. So this
module measures how far the detector's numbers move when its convolutions round to TF32, the coarsest
arithmetic that a device uses unasked. Among drawn pictures, IoU thresholds and numbers of detections it picks
a test whose closest comparison is several times as wide. That works for untrained weights too, whose scores
all lie close together.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lensbox.export.self_test_choice import Choice
from lensbox.export.self_test_images import draw_faces
from lensbox.export.tf32 import TF32_MANTISSA_BITS, OperandRounding
from lensbox.model import FaceDetector
from lensbox.ops import box_iou, padded_nms

_PICTURES = 16
_IOU_THRESHOLDS = (0.5, 0.4, 0.3)
_MAX_DETECTIONS = 20
_ENOUGH_LEVELS = 3
# In units of the largest difference that TF32 makes.
_GOOD_MARGIN = 4.0
_LEAST_MARGIN = 2.0


@dataclass(frozen=True)
class _Candidate:
    """One possible test: the first `count` detections of a picture.

    margin: how clear they are; levels: from how many levels of the pyramid they come.
    """

    seed: int
    iou_threshold: float
    score_threshold: float
    count: int
    levels: int
    margin: float


def clearest_predictions(detector: FaceDetector, mantissa_bits: int = TF32_MANTISSA_BITS) -> Choice:
    """The choice for a detector on the CPU in eval mode, without gradients.

    mantissa_bits: of the coarsest arithmetic that must not change it.
    Raises RuntimeError if no picture is clear: the detector gives (nearly) the same score everywhere, or
    numbers that are not finite.
    """
    best: _Candidate | None = None
    for seed in range(_PICTURES):
        candidates = [best] if best else []
        candidates += _candidates(detector, seed, mantissa_bits)
        best = max(candidates, key=_preference, default=None)
        if best and best.margin >= _GOOD_MARGIN and best.levels >= _ENOUGH_LEVELS:
            break
    if best is None or best.margin < _LEAST_MARGIN:
        raise RuntimeError("no picture gives detections that are clear enough for a self-test")
    return Choice(draw_faces(best.seed), best.score_threshold, best.iou_threshold, best.count)


def _preference(candidate: _Candidate) -> tuple[float, int, int]:
    # A weight that no detection depends on goes untested, hence many levels.
    return min(candidate.margin, _GOOD_MARGIN), candidate.levels, candidate.count


def _candidates(detector: FaceDetector, seed: int, mantissa_bits: int) -> list[_Candidate]:
    canvases, _ = detector.preprocess([draw_faces(seed)])
    boxes, logits = (output[0] for output in detector(canvases))
    if not (boxes.isfinite().all() and logits.isfinite().all()):
        raise RuntimeError("its predictions hold NaN or infinity")
    with OperandRounding(mantissa_bits):
        noisy_boxes, noisy_logits = (output[0] for output in detector(canvases))
    logits, order = logits.sort(descending=True, stable=True)
    order, logits = order[: detector.max_candidates], logits[: detector.max_candidates]
    boxes, noisy_boxes = boxes[order], noisy_boxes[order]
    logit_noise = float((noisy_logits[order] - logits).abs().max())
    if logit_noise == 0:
        return []  # the detector does not look at the picture

    candidates = []
    for iou_threshold in _IOU_THRESHOLDS:
        # Suppression goes from the best score down, so a higher score threshold only shortens this list. One
        # detection more than the test may have shows where the threshold can lie.
        _, _, indices, counts = padded_nms(
            boxes[None], logits.sigmoid()[None], iou_threshold, 0.0, len(boxes), _MAX_DETECTIONS + 1
        )
        kept = indices[0, : int(counts[0])]
        end = int(kept[-1]) + 1
        iou = box_iou(boxes[kept], boxes[:end])
        iou_noise = float((box_iou(noisy_boxes[kept], noisy_boxes[:end]) - iou).abs().max())
        logit_gaps = (logits[kept][:, None] - logits[:end]) / logit_noise
        iou_excess = (iou - iou_threshold) / max(iou_noise, 1e-6)
        for count in range(1, len(kept)):
            margin = _margin(kept, logit_gaps, iou_excess, count)
            score_threshold = float(logits[kept[count - 1 : count + 1]].double().mean().sigmoid())
            levels = len(set(detector.anchor_strides[order[kept[:count]]].tolist()))
            candidates.append(_Candidate(seed, iou_threshold, score_threshold, count, levels, margin))
    return candidates


def _margin(kept: Tensor, logit_gaps: Tensor, iou_excess: Tensor, count: int) -> float:
    """The closest of all comparisons that make the first `count` detections what they are, in units of noise.

    kept: int64 [K], the detections among the N candidates, which are sorted by score; K > count.
    logit_gaps, iou_excess: [K, N], a detection's logit minus a candidate's, and its IoU with it minus the
    threshold, both divided by their noise.
    """
    first, following = kept[:count], int(kept[count])
    # The order of the detections, and the last and the following one against a threshold between them.
    steps = logit_gaps[torch.arange(count), kept[1 : count + 1]]
    steps[-1] /= 2
    margins = [steps]
    # No detection suppresses another.
    above_diagonal = torch.triu(torch.ones(count, count, dtype=torch.bool), diagonal=1)
    margins.append(-iou_excess[:count, first][above_diagonal])
    # Every other candidate up to the following detection is suppressed by a detection with a better score.
    suppressed = torch.ones(following, dtype=torch.bool)
    suppressed[first] = False
    clearness = torch.minimum(logit_gaps[:count, :following], iou_excess[:count, :following])
    margins.append(clearness.amax(dim=0)[suppressed])
    return float(torch.cat(margins).min())
