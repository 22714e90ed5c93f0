"""Compare the detections of two runtimes as sets: the one rule of self-tests and exports.

docs/artifact.md, "The self-test", states the rule. The op library computes it, for the C++ runtime too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lensbox.common.detections import numbers_of_json


class Found(NamedTuple):
    """The detections in one picture, on the CPU.

    boxes: float32 [n, 4]. scores: float32 [n]. labels: int64 [n], zeros for a detector without classes.
    full: whether all slots are used. extras: further outputs by name, [n, ...].
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    full: bool
    extras: Mapping[str, Tensor]

    def tensors(self, extras: Iterable[str]) -> list[Tensor]:
        """Return boxes, scores, labels and these extras, which a picture without detections may lack."""
        further = (self.extras[name] if len(self.scores) else self.scores for name in extras)
        return [self.boxes, self.scores, self.labels, *further]


class Limits(NamedTuple):
    """The largest differences between partners.

    boxes: in pixels. scores, iou: absolute. extras: absolute, by name; extras without a limit are not
    compared. relative: fraction of a coordinate, added to `boxes`.
    """

    boxes: float
    scores: float
    iou: float
    extras: Mapping[str, float]
    relative: float = 0.0


@dataclass
class Difference:
    """The differences of two sets of detections, summed over all pictures.

    expected: number of expected detections. boxes: largest coordinate difference of each pair, in pixels.
    scores: largest difference of all pairs. exchanged, unexplained_count: number of detections without a
    partner, of both sides, that rounding explains and does not explain. unexplained: a sentence for each side
    of a picture with unexplained detections. moved, score_moved: largest differences between an expected
    detection without a partner and the detection of its label that overlaps it most, with an IoU above 0.5.
    """

    expected: int = 0
    boxes: list[float] = field(default_factory=list)
    scores: float = 0.0
    exchanged: int = 0
    unexplained: list[str] = field(default_factory=list)
    unexplained_count: int = 0
    moved: float = 0.0
    score_moved: float = 0.0

    @property
    def others(self) -> int:
        """Return the number of detections without a partner, of both sides."""
        return self.exchanged + self.unexplained_count

    def add(
        self, expected: Found, actual: Found, thresholds: tuple[float, float], limits: Limits, name: str
    ) -> None:
        """Compare the detections of two runtimes in a picture. thresholds: of score and IoU."""
        import lensbox.ops  # noqa: F401 (late: `lensbox info` must report an op library that does not load)

        boxes, numbers, unexplained = torch.ops.lensbox_runtime.compare(
            expected.tensors(limits.extras),
            actual.tensors(limits.extras),
            *thresholds,
            [limits.boxes, limits.relative, limits.scores, limits.iou],
            list(limits.extras.values()),
            [expected.full, actual.full],
        )
        scores, exchanged, unexplained_count, moved, score_moved = numbers
        self.expected += len(expected.scores)
        self.boxes += boxes
        self.scores = max(self.scores, scores)
        self.exchanged += int(exchanged)
        self.unexplained += [f"{name}: {sentence}" for sentence in unexplained]
        self.unexplained_count += int(unexplained_count)
        self.moved = max(self.moved, moved)
        self.score_moved = max(self.score_moved, score_moved)


def found_in(answer: Mapping[str, Tensor], slots: int | None, index: int = 0) -> Found:
    """Return the detections of one canvas of a batch, on the CPU. slots: K; None if K varies."""
    count = int(answer["counts"][index])
    found = {name: value[index, :count].cpu() for name, value in answer.items() if name != "counts"}
    boxes, scores = found.pop("boxes"), found.pop("scores")
    labels = found.pop("labels", torch.zeros_like(scores, dtype=torch.int64))
    return Found(boxes, scores, labels, 0 < count == slots, found)


def found_of_json(
    detections: Sequence[Mapping[str, Any]], classes: Sequence[str] = (), slots: int | None = None
) -> Found:
    """Return the detections in an answer of the C++ runner or a service. slots: K; None if K varies."""
    boxes, scores = (
        torch.tensor([numbers_of_json(one[key]) for one in detections]).float() for key in ("box", "score")
    )
    labels = torch.tensor([classes.index(one["label"]) if classes else 0 for one in detections]).long()
    full = 0 < len(detections) == slots
    names = detections[0].get("extras", ()) if detections else ()
    extras = {
        name: torch.tensor([numbers_of_json(one["extras"][name]) for one in detections]) for name in names
    }
    return Found(boxes.reshape(-1, 4), scores, labels, full, extras)
