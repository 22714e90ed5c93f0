"""Translate `lensbox::padded_nms` to standard operators of ONNX.

`nms_for_onnx` replaces calls of the op by calls of a float32 op that exists only for the exporter.
`TRANSLATIONS` holds the ONNX operators of that op.

The rules of `padded_nms` (docs/ops.md): keep scores above the threshold; take the best max_candidates by
score, then by index; of two boxes whose intersection is more than iou_threshold times their union, keep the
better one. The ONNX runtime decides the last rule: most runtimes divide, where the op multiplies, so the
decision may differ if the IoU is within a rounding error of the threshold.
"""

from collections.abc import Callable
from typing import Any

import torch
from onnxscript import opset18
from torch import Tensor

from lensbox.export.detector.graph import Kept

op: Any = opset18  # its type annotations are too narrow


@torch.library.custom_op("lensbox_onnx::padded_nms", mutates_args=())
def _padded_nms(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: Tensor,
    score_threshold: Tensor,
    max_candidates: int,
    max_detections: int,
    categories: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run `padded_nms` in float32, with max_detections <= max_candidates <= N. thresholds: float32 []."""
    thresholds = float(iou_threshold), float(score_threshold)
    found: tuple[Tensor, Tensor, Tensor, Tensor] = torch.ops.lensbox.padded_nms(
        boxes, scores, *thresholds, max_candidates, max_detections, categories
    )
    return found


@_padded_nms.register_fake
def _(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: Tensor,
    score_threshold: Tensor,
    max_candidates: int,
    max_detections: int,
    categories: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch = boxes.shape[0]
    return (
        boxes.new_empty(batch, max_detections, 4),
        scores.new_empty(batch, max_detections),
        scores.new_empty(batch, max_detections, dtype=torch.int64),
        scores.new_empty(batch, dtype=torch.int32),
    )


_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def nms_for_onnx(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: Tensor,
    score_threshold: Tensor,
    max_candidates: int,
    max_detections: int,
    categories: Tensor | None = None,
) -> Kept:
    """Decompose `lensbox.export.detector.graph.NMS` into `_padded_nms`, for a table of `decomposed`.

    Raises ValueError for float64 and for a number of boxes that varies.
    """
    count = boxes.shape[1]
    if type(count) is not int:
        raise ValueError(
            "padded_nms must be given a constant number of boxes for ONNX, got a number that varies"
        )
    if boxes.dtype not in _DTYPES or scores.dtype not in _DTYPES:
        raise ValueError(
            "padded_nms must be given boxes and scores of at most 32 bits, for ONNX, got "
            f"{boxes.dtype} and {scores.dtype}"
        )
    candidates = min(max_candidates, count)
    slots = min(max_detections, candidates)
    # float32 represents all float16 and bfloat16 numbers; the op also rounds thresholds to float32.
    found_boxes, found_scores, indices, counts = torch.ops.lensbox_onnx.padded_nms(
        boxes.float(),
        scores.float(),
        iou_threshold.float(),
        score_threshold.float(),
        candidates,
        slots,
        categories,
    )
    unused = max_detections - slots
    if unused > 0:
        pad = torch.nn.functional.pad
        found_boxes, found_scores = pad(found_boxes, (0, 0, 0, unused)), pad(found_scores, (0, unused))
        indices = pad(indices, (0, unused), value=-1)
    return found_boxes.to(boxes.dtype), found_scores.to(scores.dtype), indices, counts


def _translated(
    boxes: Any,
    scores: Any,
    iou_threshold: Any,
    score_threshold: Any,
    max_candidates: int,
    max_detections: int,
    categories: Any = None,
) -> tuple[Any, Any, Any, Any]:
    """Return the ONNX values of `_padded_nms`. Arguments are values of the ONNX graph."""
    # NaN is not greater than the threshold. TopK puts the lower index first for equal scores.
    lowest = op.Constant(value_float=float("-inf"))
    above = op.Where(op.Greater(scores, score_threshold), scores, lowest)
    best_scores, best = op.TopK(above, op.Constant(value_ints=[max_candidates]), axis=1)
    best_boxes = op.GatherND(boxes, op.Unsqueeze(best, op.Constant(value_ints=[-1])), batch_dims=1)

    by_category = op.Unsqueeze(best_scores, op.Constant(value_ints=[1]))  # [B, 1, candidates]
    if categories is not None:
        chosen = op.GatherElements(categories, best, axis=1)
        different, _, _, _ = op.Unique(chosen)
        is_of = op.Equal(
            op.Unsqueeze(chosen, op.Constant(value_ints=[1])),
            op.Unsqueeze(different, op.Constant(value_ints=[1])),
        )
        by_category = op.Where(is_of, by_category, lowest)  # [B, categories, candidates]
    one = op.Constant(value_ints=[1])  # the shape of thresholds in ONNX's tests
    selected = op.NonMaxSuppression(
        _upright(best_boxes),
        by_category,
        op.Constant(value_ints=[max_detections]),
        op.Reshape(iou_threshold, one),
        op.Constant(value_floats=[_LEAST]),  # scores below the threshold are -inf already
    )
    # Rows of image, category, candidate in undefined order: restore the order of the candidates.
    places = op.Gather(selected, op.Constant(value_ints=[0, 2]), axis=1)
    nowhere = op.Min(best_scores, lowest)
    kept = op.ScatterND(nowhere, places, op.GatherND(best_scores, places))
    found_scores, slots = op.TopK(kept, op.Constant(value_ints=[max_detections]), axis=1)
    used = op.Greater(found_scores, lowest)
    slots = op.Unsqueeze(slots, op.Constant(value_ints=[-1]))
    zero = op.Constant(value_float=0.0)
    return (
        op.Where(
            op.Unsqueeze(used, op.Constant(value_ints=[-1])),
            op.GatherND(best_boxes, slots, batch_dims=1),
            zero,
        ),
        op.Where(used, found_scores, zero),
        op.Where(used, op.GatherND(best, slots, batch_dims=1), op.Constant(value_int=-1)),
        op.ReduceSum(op.Cast(used, to=_INT32), op.Constant(value_ints=[1]), keepdims=0),
    )


def _upright(boxes: Any) -> Any:
    """Make inverted sides empty, as the op does: ONNX would swap the corners of such boxes."""
    return op.Max(boxes, op.Gather(boxes, op.Constant(value_ints=[0, 1, 0, 1]), axis=2))


_INT32 = 6  # onnx.TensorProto.INT32
_LEAST = -3.0e38  # finite, so that no runtime accepts -inf, the score of "no candidate"

# For torch.onnx.export's custom_translation_table.
TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.lensbox_onnx.padded_nms.default: _translated
}
