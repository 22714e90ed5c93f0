"""Translate `lensbox::padded_nms` to standard operators of ONNX, which compute in float32.

The rules of `padded_nms` (docs/ops.md): keep scores above the threshold; take the best max_candidates by
score, then by index; of two boxes whose intersection is more than iou_threshold times their union, keep the
better one. The ONNX runtime decides the last rule: most runtimes divide, where the op multiplies, so the
decision may differ if the IoU is within a rounding error of the threshold.
"""

from typing import Any

from onnx import TensorProto
from onnxscript import opset18

op: Any = opset18  # its type annotations are too narrow

_LEAST = -3.0e38  # finite, so that no runtime accepts -inf, the score of "no candidate"
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def nms_in_onnx(
    boxes: Any,
    scores: Any,
    iou_threshold: Any,
    score_threshold: Any,
    max_candidates: int,
    max_detections: int,
    categories: Any = None,
) -> tuple[Any, Any, Any, Any]:
    """Return boxes, scores, indices and counts for a call of `lensbox.export.detector.graph.NMS`.

    Arguments and results are values of an ONNX graph. For torch.onnx.export's custom_translation_table.
    Raise ValueError for float64 and for a number of boxes that varies.
    """
    count, dtypes = boxes.shape[1], (boxes.dtype, scores.dtype)
    if not isinstance(count, int):
        raise ValueError(
            "padded_nms must be given a constant number of boxes for ONNX, got a number that varies"
        )
    if not all(dtype in _FLOATS for dtype in dtypes):
        names = " and ".join(dtype.name for dtype in dtypes)
        raise ValueError(
            f"padded_nms must be given boxes and scores of at most 32 bits, for ONNX, got {names}"
        )
    candidates = min(max_candidates, count)
    slots = min(max_detections, candidates)
    # float32 represents all float16 and bfloat16 numbers; the op also rounds thresholds to float32.
    values = (boxes, scores, iou_threshold, score_threshold)
    boxes, scores, iou_threshold, score_threshold = (op.Cast(value, to=TensorProto.FLOAT) for value in values)

    # NaN is not greater than the threshold. TopK puts the lower index first for equal scores.
    lowest = op.Constant(value_float=float("-inf"))
    above = op.Where(op.Greater(scores, score_threshold), scores, lowest)
    best_scores, best = op.TopK(above, _ints(candidates), axis=1)
    best_boxes = op.GatherND(boxes, op.Unsqueeze(best, _ints(-1)), batch_dims=1)

    by_category = op.Unsqueeze(best_scores, _ints(1))  # [B, 1, candidates]
    if categories is not None:
        chosen = op.GatherElements(categories, best, axis=1)
        different, _, _, _ = op.Unique(chosen)
        is_of = op.Equal(op.Unsqueeze(chosen, _ints(1)), op.Unsqueeze(different, _ints(1)))
        by_category = op.Where(is_of, by_category, lowest)  # [B, categories, candidates]
    one = _ints(1)  # the shape of thresholds in ONNX's tests
    selected = op.NonMaxSuppression(
        # Inverted sides are empty, as for the op: ONNX would swap the corners of such boxes.
        op.Max(best_boxes, op.Gather(best_boxes, _ints(0, 1, 0, 1), axis=2)),
        by_category,
        _ints(slots),
        op.Reshape(iou_threshold, one),
        op.Constant(value_floats=[_LEAST]),  # scores below the threshold are -inf already
    )
    # Rows of image, category, candidate in undefined order: restore the order of the candidates.
    places = op.Gather(selected, _ints(0, 2), axis=1)
    nowhere = op.Min(best_scores, lowest)
    kept = op.ScatterND(nowhere, places, op.GatherND(best_scores, places))
    found_scores, order = op.TopK(kept, _ints(slots), axis=1)
    used = op.Greater(found_scores, lowest)
    order = op.Unsqueeze(order, _ints(-1))
    zero = op.Constant(value_float=0.0)
    found_boxes = op.Where(op.Unsqueeze(used, _ints(-1)), op.GatherND(best_boxes, order, batch_dims=1), zero)
    found_scores = op.Where(used, found_scores, zero)
    indices = op.Where(used, op.GatherND(best, order, batch_dims=1), op.Constant(value_int=-1))
    counts = op.ReduceSum(op.Cast(used, to=TensorProto.INT32), _ints(1), keepdims=0)
    if unused := max_detections - slots:
        end = _ints(0, 0, 0, unused)
        found_boxes = op.Pad(found_boxes, _ints(0, 0, 0, 0, unused, 0))
        found_scores = op.Pad(found_scores, end)
        indices = op.Pad(indices, end, op.Constant(value_int=-1))
    return op.Cast(found_boxes, to=dtypes[0]), op.Cast(found_scores, to=dtypes[1]), indices, counts


def _ints(*values: int) -> Any:
    return op.Constant(value_ints=list(values))
