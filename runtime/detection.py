"""What a detector finds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lensbox.common.errors import ArtifactError


@dataclass(frozen=True)
class Detections:
    """What was found in one image, best first, on the CPU.

    boxes: float32 [n, 4], xyxy in pixels of the original image; scores: float32 [n], 0..1. labels: int64 [n],
    indices into the artifact's `classes`; None where it has none. extras: by name, [n, ...]; points in pixels
    of the original image.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor | None = None
    extras: Mapping[str, Tensor] = field(default_factory=dict)


class FileDetections(NamedTuple):
    """What was found in an image file; width, height: of the upright photograph at full size."""

    width: int
    height: int
    detections: Detections


def detections(
    boxes: NDArray[np.float32],
    scores: NDArray[np.float32],
    counts: list[int],
    further: Mapping[str, NDArray[Any]],
) -> list[Detections]:
    """Those of each image of a batch: the first counts[b] of its boxes, [B, K, 4], and scores, [B, K].

    further: the other outputs by name, [B, K, ...], labels among them.
    """

    def first(values: NDArray[Any], image: int) -> Tensor:
        # Copies: a view would keep what was found in the whole batch. numpy's keep Python's lock, which
        # threads that decode images wait for at each call of torch.
        return torch.from_numpy(values[image, : counts[image]].copy())

    extras = {name: values for name, values in further.items() if name != "labels"}
    return [
        Detections(
            first(boxes, image),
            first(scores, image),
            first(further["labels"], image) if "labels" in further else None,
            {name: first(values, image) for name, values in extras.items()},
        )
        for image in range(len(counts))
    ]


def check_labels(labels: NDArray[np.int64], counts: list[int], classes: int) -> None:
    """Raises ArtifactError unless the first counts[b] labels of each image, [B, K], name a class."""
    counted = labels[np.arange(labels.shape[1]) < np.array(counts)[:, None]]
    wrong = counted[(counted < 0) | (counted >= classes)]
    if wrong.size:
        raise ArtifactError(
            f"the detector must answer labels from 0 to {classes - 1}, as it has {classes} classes, "
            f"got {wrong[0]}"
        )
