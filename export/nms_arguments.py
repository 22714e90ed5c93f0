"""What the forms of `lensbox::padded_nms` that exported graphs hold have in common: their arguments."""

from collections.abc import Callable

import torch
from torch import Tensor

Found = tuple[Tensor, Tensor, Tensor, Tensor]

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def with_plain_arguments(padded_nms: Callable[..., Found], target: str) -> Callable[..., Found]:
    """`padded_nms` with the arguments of the op, thresholds being tensors or numbers, for `ReplacedNms`.

    padded_nms: takes boxes, scores and thresholds in float32, and max_detections <= max_candidates <= N.
    target: what the graph is for, in errors. The result raises ValueError for float64 and for a number of
    boxes that varies.
    """

    def with_any_arguments(
        boxes: Tensor,
        scores: Tensor,
        iou_threshold: Tensor | float,
        score_threshold: Tensor | float,
        max_candidates: int,
        max_detections: int,
        categories: Tensor | None = None,
    ) -> Found:
        count = boxes.shape[1]
        if type(count) is not int:
            raise ValueError(
                f"padded_nms must be given as many boxes of each image whatever the batch, for {target}, got "
                "a number that varies"
            )
        if boxes.dtype not in _DTYPES or scores.dtype not in _DTYPES:
            raise ValueError(
                f"padded_nms must be given boxes and scores of at most 32 bits, for {target}, got "
                f"{boxes.dtype} and {scores.dtype}"
            )
        candidates = min(max_candidates, count)
        slots = min(max_detections, candidates)
        # float32 holds every number of the shorter dtypes, and a threshold is rounded to it there, too.
        found_boxes, found_scores, indices, counts = padded_nms(
            boxes.float(),
            scores.float(),
            _tensor(iou_threshold),
            _tensor(score_threshold),
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

    return with_any_arguments


def _tensor(threshold: Tensor | float) -> Tensor:
    return (
        threshold.float() if isinstance(threshold, Tensor) else torch.tensor(threshold, dtype=torch.float32)
    )
