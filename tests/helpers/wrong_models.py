"""Models that find something else than their detector: what no export may let through."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

Run = Callable[..., Mapping[str, Tensor]]


def wrong_in_batches_of(size: int, run: Run) -> Run:
    """The method `run` of a model, but for boxes that are moved in batches of one size."""

    def wrong(
        self: Any, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> Mapping[str, Tensor]:
        found = dict(run(self, images, score_threshold, iou_threshold))
        if len(images) == size:
            found["boxes"] = found["boxes"] + 52
        return found

    return wrong
