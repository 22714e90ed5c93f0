"""What POST /v1/evaluate takes and answers, as Python's types."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike

from lensbox.client.errors import ServiceError


@dataclass(frozen=True)
class Target:
    """A box to find: x1, y1, x2, y2 in pixels of the upright photograph. label: the name of its class, where
    the detector has classes. ignore: it may be found and need not be."""

    box: Sequence[float]
    label: str | None = None
    ignore: bool = False

    def to_json(self) -> dict[str, Any]:
        """As the service takes it. Raises ValueError for a box that is none."""
        try:
            x1, y1, x2, y2 = (float(side) for side in self.box)
        except (TypeError, ValueError) as error:
            raise ValueError(f"a target must be a box x1, y1, x2, y2, got {self.box!r}") from error
        label = {} if self.label is None else {"label": self.label}
        return {"box": [x1, y1, x2, y2], **label, "ignore": self.ignore}


Targets = ArrayLike | Iterable[Target | ArrayLike]
"""Of an image: `Target`s, or boxes [n, 4]."""


def targets_json(targets: Any) -> list[Any]:
    """The boxes of an image as the service takes them. Raises ValueError."""
    return [(target if isinstance(target, Target) else Target(target)).to_json() for target in targets]


@dataclass(frozen=True)
class Counts:
    """Of detections with a score above score_threshold. precision: hits among them, None without any. recall:
    hits among the boxes, None without any."""

    score_threshold: float
    hits: int
    false_alarms: int
    misses: int
    precision: float | None
    recall: float | None


@dataclass(frozen=True)
class ClassEvaluation(Counts):
    """Of one class; boxes: how many there are to find. The rest as in `Evaluation`."""

    boxes: int
    average_precision: float | None
    average_precision_50_95: float | None


@dataclass(frozen=True)
class ImageEvaluation:
    """Of one image of that size. missed: which of its targets were not found. loss: the model's loss of the
    hits, None without any."""

    width: int
    height: int
    hits: int
    false_alarms: int
    misses: int
    missed: tuple[int, ...]
    loss: float | None


@dataclass(frozen=True)
class Evaluation(Counts):
    """How well a detector does on images, in all.

    images: each, in their order; the ServiceError that says why one could not be read, which counts for
    nothing. evaluated: how many could. match_iou: a detection hits a box of its class with at least this IoU.
    thresholds: the counts at other score thresholds. recommended_threshold: that with the best F1, best_f1.
    average_precision: at match_iou; average_precision_50_95: COCO's, the mean over IoU 0.5 to 0.95; with
    classes the means of theirs; None for one image. loss: the model's loss of all hits, None without any.
    classes: by name, where the detector has some.
    """

    images: tuple[ImageEvaluation | ServiceError, ...]
    evaluated: int
    match_iou: float
    thresholds: tuple[Counts, ...]
    best_f1: float
    recommended_threshold: float | None
    average_precision: float | None
    average_precision_50_95: float | None
    loss: float | None
    classes: Mapping[str, ClassEvaluation] = field(default_factory=dict)

    @classmethod
    def from_json(cls, document: Mapping[str, Any], request_id: str | None = None) -> "Evaluation":
        """Of an answer of the service. Raises AttributeError, KeyError, TypeError, ValueError for another."""
        return cls(
            **_counts(document),
            images=tuple(_image(image, request_id) for image in document["images"]),
            evaluated=int(document["evaluated"]),
            match_iou=float(document["match_iou"]),
            thresholds=tuple(Counts(**_counts(counts)) for counts in document["thresholds"]),
            best_f1=float(document["best_f1"]),
            recommended_threshold=_number(document["recommended_threshold"]),
            **_precisions(document),
            loss=_number(document["loss"]),
            classes={
                str(name): ClassEvaluation(
                    **_counts(figures), boxes=int(figures["boxes"]), **_precisions(figures)
                )
                for name, figures in document.get("classes", {}).items()
            },
        )


def _counts(document: Mapping[str, Any]) -> dict[str, Any]:
    counts: dict[str, Any] = {name: int(document[name]) for name in ("hits", "false_alarms", "misses")}
    shares = {name: _number(document[name]) for name in ("precision", "recall")}
    return {"score_threshold": float(document["score_threshold"]), **counts, **shares}


def _precisions(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _number(document[name]) for name in ("average_precision", "average_precision_50_95")}


def _image(document: Mapping[str, Any], request_id: str | None) -> ImageEvaluation | ServiceError:
    if "error" in document:
        problem = document["error"]
        return ServiceError.from_problem(problem, problem["status"], request_id)
    counts = {name: int(document[name]) for name in ("width", "height", "hits", "false_alarms", "misses")}
    missed = tuple(int(index) for index in document["missed"])
    return ImageEvaluation(**counts, missed=missed, loss=_number(document["loss"]))


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
