"""Teachers: larger detectors, whose predictions a small one learns besides the labels.

Detectors of all sizes have the same anchors, so nothing needs matching.

A detector that was trained long on few photographs knows them by heart and predicts their labels. Its
predictions for photographs that it never saw are better targets. So a teacher may leave out a fold, a share
of the photographs, and is then asked about that fold only (cross-fitting, Dao et al. 2021, arXiv:2104.09732).
The name of a photograph alone decides its fold; other data and another order change nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from lensbox.model import FaceDetector, load_detector, read_metadata, weights_sha256
from lensbox.train.data.labels import LabelledImage, fold_index
from lensbox.train.settings import ConfigError

LEFT_OUT = "left_out"  # key of a detector's metadata: the fold that it was not trained on

Predict = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, order=True)
class Fold:
    """One of `count` folds of about equal size; `index` starts at 0. Text form: `1/4` for index 0 of 4."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index + 1}/{self.count}"


def parse_fold(text: str, source: str = "--leave-out") -> Fold:
    """Parse `K/N`, such as `1/4`. Raise ConfigError that names `source` unless 1 <= K <= N and N >= 2."""
    index, slash, count = text.partition("/")
    if slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count) >= 2:
        return Fold(int(index) - 1, int(count))
    raise ConfigError(
        f"{source} must be a share such as 1/4, from 1/N to N/N with N at least 2, got {text!r}"
    )


def without_fold(images: Sequence[LabelledImage], fold: Fold) -> list[LabelledImage]:
    """Return the photographs of all other folds."""
    return [image for image in images if fold_index(image.name, fold.count) != fold.index]


@dataclass(frozen=True)
class Teachers:
    """Detectors to learn from.

    Attributes:
        whole: teachers that were trained on all photographs.
        sets: complete sets of teachers that left a fold out, in the order of the folds.
        folds: number of folds, 1 without sets.
        origin: names and hashes, for the metadata of the student's weights.
    """

    whole: tuple[FaceDetector, ...] = ()
    sets: tuple[tuple[FaceDetector, ...], ...] = ()
    origin: dict[str, str] = field(default_factory=dict)

    @property
    def folds(self) -> int:
        return len(self.sets[0]) if self.sets else 1

    def __bool__(self) -> bool:
        return bool(self.whole or self.sets)


class Taught(NamedTuple):
    """Predictions of teachers for a batch: boxes float32 [B, A, 4], xyxy in canvas pixels; scores float32
    [B, A], 0 to 1."""

    boxes: Tensor
    scores: Tensor


def load_teachers(paths: Sequence[Path]) -> Teachers:
    """Load weights that `save_detector` wrote, of any size of detector.

    Raises:
        ConfigError: the teachers that left a fold out are no complete sets.
        InputError: as `load_detector`.
    """
    whole: list[FaceDetector] = []
    by_fold: defaultdict[Fold, list[FaceDetector]] = defaultdict(list)
    digests = []
    for path in paths:
        detector = load_detector(path).requires_grad_(False)
        left_out = read_metadata(path).get(LEFT_OUT)
        source = f"{path}: {LEFT_OUT!r} in its metadata"
        (by_fold[parse_fold(left_out, source)] if left_out else whole).append(detector)
        digests.append(weights_sha256(detector))
    if not paths:
        return Teachers()
    names = ", ".join(path.name for path in paths)
    origin = {"teachers": names, "teachers_sha256": ", ".join(digests)}
    return Teachers(tuple(whole), _complete_sets(by_fold), origin)


def _complete_sets(by_fold: dict[Fold, list[FaceDetector]]) -> tuple[tuple[FaceDetector, ...], ...]:
    if not by_fold:
        return ()
    count = next(iter(by_fold)).count
    groups = [by_fold.get(Fold(index, count), []) for index in range(count)]
    sizes = {len(group) for group in groups}
    if len(by_fold) != count or len(sizes) != 1:
        given = ", ".join(f"{len(group)} without {fold}" for fold, group in sorted(by_fold.items()))
        raise ConfigError(
            f"--teacher must name as many teachers without each fold from 1/{count} to {count}/{count}, "
            f"got {given}"
        )
    return tuple(zip(*groups, strict=True))


@torch.no_grad()
def teach(whole: Sequence[Predict], sets: Sequence[Sequence[Predict]], images: Tensor) -> Taught:
    """Return the mean of the teachers' predictions for images float32 [B, 1, 256, 256], 0 to 255.

    With sets of K teachers, the photographs of image b belong to fold b mod K. Teacher b mod K of each set
    predicts for this image. Boxes are weighted by scores: a teacher that sees no face at an anchor has no
    influence on its box.
    """
    predictions = [teacher(images) for teacher in whole]
    for group in sets:
        parts = [teacher(images[index :: len(group)]) for index, teacher in enumerate(group)]
        boxes, logits = (torch.stack(values, dim=1).flatten(0, 1) for values in zip(*parts, strict=True))
        predictions.append((boxes, logits))
    boxes = torch.stack([boxes.float() for boxes, _ in predictions])
    scores = torch.stack([logits.float().sigmoid() for _, logits in predictions])
    weight = scores / scores.sum(0).clamp(min=1e-6)
    return Taught((weight[..., None] * boxes).sum(0), scores.mean(0))
