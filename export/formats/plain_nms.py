"""`lensbox::padded_nms` in operators of ATen alone, of which a graph with plain operators is made.

The rules of the op (docs/ops.md): scores above the threshold, the best max_candidates of them, by
score and then by index; of two boxes whose intersection is more than iou_threshold times their union, the
better one stays. Products and sums are computed in the op's order. Only boxes of more than 2**128 square
pixels, whose areas overflow float32, suppress nothing here.

No shape depends on data, and there is no loop in the graph: compilers refuse `while_loop`. Greedy suppression
is sequential, each box that is kept deciding which is the next: the graph has a step of three operators for
each slot of the result, whether a detection fills it or not.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from lensbox.export.graph import Kept

_NOTHING = -torch.inf  # the score of what is no candidate, or no longer


def plain_padded_nms(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: Tensor,
    score_threshold: Tensor,
    max_candidates: int,
    max_detections: int,
    categories: Tensor | None = None,
) -> Kept:
    """`padded_nms` of float32 with max_detections <= max_candidates <= N; thresholds: float32 []."""
    scores = torch.where(scores > score_threshold, scores, _NOTHING)  # a NaN is not greater
    index = torch.arange(scores.shape[1], device=scores.device).expand_as(scores)
    if max_candidates < scores.shape[1]:
        index = _best(scores, index, max_candidates)
    index = _best_last(scores.gather(1, index), index)
    boxes = boxes.gather(1, index[:, :, None].expand(-1, -1, 4))
    scores = scores.gather(1, index)
    rivals = _overlapping(boxes, iou_threshold)
    if categories is not None:
        rivals = rivals & _of_pairs(torch.eq, categories.gather(1, index))
    rows = _kept(rivals, scores > _NOTHING, max_detections)
    used, shape = rows > 0, rows.shape
    rows = (rows - 1).clamp(min=0).flatten()
    return (
        torch.where(used[:, :, None], boxes.flatten(0, 1).index_select(0, rows).view(*shape, 4), 0.0),
        torch.where(used, scores.flatten().index_select(0, rows).view(shape), 0.0),
        torch.where(used, index.flatten().index_select(0, rows).view(shape), -1),
        used.sum(1, dtype=torch.int32),
    )


def _best(scores: Tensor, index: Tensor, count: int) -> Tensor:
    """int64 [B, count]: where the best scores are, of equal ones the first; ascending, whatever the scores.

    scores: [B, N], without NaN; index: int64 [B, N], from 0. count: less than N.
    """
    least = scores.topk(count, dim=1).values.amin(1, keepdim=True)
    above, tied = scores > least, scores == least
    room = count - above.sum(1, keepdim=True)
    chosen = above | (tied & (tied.long().cumsum(1) <= room))  # `count` of each image
    place = torch.where(chosen, chosen.long().cumsum(1) - 1, count)
    return index.new_zeros(scores.shape[0], count + 1).scatter(1, place, index)[:, :count]


def _best_last(scores: Tensor, index: Tensor) -> Tensor:
    """The indices int64 [B, C], ascending, in the order of their scores [B, C], of equal ones the last first.

    Places are counted, since the order of equal scores is not to be relied on in what compilers make of
    `topk` and `sort`.
    """
    order = torch.arange(scores.shape[1], device=scores.device)
    better = _of_pairs(torch.gt, scores) | (_of_pairs(torch.eq, scores) & (order[:, None] < order))
    return torch.zeros_like(index).scatter(1, better.sum(2), index)


def _overlapping(boxes: Tensor, threshold: Tensor) -> Tensor:
    """bool [B, C, C]: which boxes [B, C, 4] overlap by more than the threshold."""
    x1, y1, x2, y2 = (boxes[:, :, side] for side in range(4))
    area = (x2 - x1).clamp(min=0) * (y2 - y1).clamp(min=0)
    width = _of_pairs(torch.minimum, x2) - _of_pairs(torch.maximum, x1)
    height = _of_pairs(torch.minimum, y2) - _of_pairs(torch.maximum, y1)
    inter = width.clamp(min=0) * height.clamp(min=0)
    return inter > threshold * (_of_pairs(torch.add, area) - inter)


def _of_pairs(combine: Callable[[Tensor, Tensor], Tensor], values: Tensor) -> Tensor:
    """[B, C, C], of [B, C]."""
    return combine(values[:, :, None], values[:, None, :])


def _kept(rivals: Tensor, valid: Tensor, slots: int) -> Tensor:
    """Greedy suppression: the best candidate is kept, and its rivals are gone; then the best that is left.

    valid: bool [B, C], best last; rivals: bool [B, C, C]. Returns the rows of what is kept, int64 [B, slots],
    0 where there is no more. They count from 1, through the candidates of one image after another.
    """
    batch, count = valid.shape
    order = torch.arange(count, device=valid.device)
    removed = (rivals | (order[:, None] == order)).flatten(0, 1)  # by each candidate, itself among them
    removed = torch.cat([removed.new_zeros(1, count), removed])  # row 0
    rows = torch.arange(batch, device=valid.device)[:, None] * count + order + 1
    gone = rows.new_zeros(())
    left, kept = torch.where(valid, rows, gone), []
    for _ in range(slots):
        kept.append(left.amax(1))
        left = torch.where(removed.index_select(0, kept[-1]), gone, left)
    return torch.cat(kept).view(slots, batch).t()
