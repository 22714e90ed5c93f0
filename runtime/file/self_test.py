"""The self-test of an artifact: a picture and its expected detections.

`lensbox.runtime.detect.self_test` runs the self-test. `_Stored` is the form in `lensbox.json`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, Field, GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from torch import Tensor

from lensbox.common.fields import STRICT, Fraction

MAX_PIXELS = 1 << 20
DEVICES = ("cpu", "cuda")

_FLOAT32_MAX = torch.finfo(torch.float32).max
Number = Annotated[float, Field(ge=-_FLOAT32_MAX, le=_FLOAT32_MAX)]
NonNegative = Annotated[float, Field(ge=0, le=_FLOAT32_MAX)]


@dataclass(frozen=True)
class Tolerance:
    """Absolute tolerances: boxes in pixels, scores and loss."""

    boxes: float
    scores: float
    loss: float


# Float32 on the CPU differs only by the order of sums; TF32 convolutions keep 11 bits of each factor.
TOLERANCES = {
    "cpu": Tolerance(boxes=0.01, scores=0.001, loss=1e-5),
    "cuda": Tolerance(boxes=0.5, scores=0.02, loss=1e-5),
}
IOU_TOLERANCES = {"cpu": 0.01, "cuda": 0.02}
EXCHANGED_PART = 20  # rounding may add or remove one detection for each 20 expected ones


@dataclass(frozen=True)
class ExpectedExtra:
    """A further output of the expected detections.

    values: float64 [n, ...]; points are in pixels of the image. tolerances: the largest absolute difference
    by device type; "cuda" applies to all devices but "cpu".
    """

    kind: Literal["points", "values"]
    values: Tensor
    tolerances: Mapping[str, float]


@dataclass(frozen=True)
class SelfTest:
    """Input and expected output; boxes are xyxy in pixels of `image`.

    image: uint8 [C, H, W]; boxes: float32 [n, 4], restored; scores: float32 [n], best first;
    loss_predictions, loss_targets: float32 [m, 4]; tolerances: by device type, "cuda" for all but "cpu";
    labels: int64 [n], None for a detector without classes; extras: by name.
    """

    image: Tensor
    score_threshold: float
    iou_threshold: float
    boxes: Tensor
    scores: Tensor
    loss_predictions: Tensor
    loss_targets: Tensor
    loss: float
    tolerances: dict[str, Tolerance]
    labels: Tensor | None = None
    extras: Mapping[str, ExpectedExtra] = field(default_factory=dict)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of a field: an instance in Python, the form of `_Stored` in JSON."""
        stored = core_schema.with_info_after_validator_function(_read, handler.generate_schema(_Stored))
        return core_schema.json_or_python_schema(
            stored,
            core_schema.is_instance_schema(cls),
            serialization=core_schema.plain_serializer_function_ser_schema(_to_dict),
        )


def max_error(actual: Tensor, expected: Tensor) -> float:
    """Return the largest absolute difference: 0 without elements, NaN if an element is NaN."""
    return float((actual - expected).abs().max()) if expected.numel() else 0.0


_Box = tuple[Number, Number, Number, Number]


class _Model(BaseModel):
    model_config = {**STRICT, "frozen": True}


class _Image(_Model):
    shape: tuple[Literal[1, 3, 4], Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]
    pixels: Annotated[list[Annotated[int, Field(ge=0, le=255)]], Field(max_length=MAX_PIXELS)]


class _Expected(_Model):
    boxes: Annotated[list[_Box], Field(min_length=1)]
    scores: Annotated[list[Fraction], Field(min_length=1)]
    labels: list[Annotated[int, Field(ge=0)]] | None = None
    extras: dict[str, list[list[Number]]] = {}


class _Loss(_Model):
    predictions: Annotated[list[_Box], Field(min_length=1)]
    targets: Annotated[list[_Box], Field(min_length=1)]
    expected: Number


class _Tolerance(_Model):
    boxes: NonNegative
    scores: NonNegative
    loss: NonNegative
    extras: dict[str, NonNegative] = {}


class _Tolerances(_Model):
    cpu: _Tolerance
    cuda: _Tolerance


class _Stored(_Model):
    image: _Image
    score_threshold: Fraction
    iou_threshold: Fraction
    expected: _Expected
    loss: _Loss
    tolerance: _Tolerances


def _read(stored: _Stored, info: ValidationInfo) -> SelfTest:
    """Return the self-test; `classes` and `extras` of the metadata are validated already."""
    classes, extras = info.data.get("classes", ()), info.data.get("extras", {})
    expected, loss, count = stored.expected, stored.loss, len(stored.expected.scores)
    limits = {"cpu": stored.tolerance.cpu, "cuda": stored.tolerance.cuda}
    _require_length("image.pixels", stored.image.pixels, math.prod(stored.image.shape))
    _require_length("expected.boxes", expected.boxes, count)
    _require_length("loss.predictions", loss.predictions, len(loss.targets))
    labels = None
    if classes:
        _require_length("expected.labels", expected.labels or [], count)
        labels = torch.tensor(expected.labels, device="cpu")
        if max(expected.labels or []) >= len(classes):
            _refuse("expected.labels", f"hold numbers below {len(classes)}", max(expected.labels or []))
    return SelfTest(
        image=torch.tensor(stored.image.pixels, dtype=torch.uint8, device="cpu").view(stored.image.shape),
        score_threshold=stored.score_threshold,
        iou_threshold=stored.iou_threshold,
        boxes=torch.tensor(expected.boxes, dtype=torch.float32, device="cpu"),
        scores=torch.tensor(expected.scores, dtype=torch.float32, device="cpu"),
        loss_predictions=torch.tensor(loss.predictions, dtype=torch.float32, device="cpu"),
        loss_targets=torch.tensor(loss.targets, dtype=torch.float32, device="cpu"),
        loss=loss.expected,
        tolerances={
            device: Tolerance(limit.boxes, limit.scores, limit.loss) for device, limit in limits.items()
        },
        labels=labels,
        extras={name: _read_extra(name, extra, expected, limits, count) for name, extra in extras.items()},
    )


def _read_extra(
    name: str, extra: Any, expected: _Expected, limits: Mapping[str, _Tolerance], count: int
) -> ExpectedExtra:
    rows = expected.extras.get(name, [])
    _require_length(f"expected.extras.{name}", rows, count)
    for index, row in enumerate(rows):
        _require_length(f"expected.extras.{name}[{index}]", row, math.prod(extra.shape))
    for device, limit in limits.items():
        if name not in limit.extras:
            _refuse(f"tolerance.{device}.extras.{name}", "be a number", "nothing")
    values = torch.tensor(rows, dtype=torch.float64, device="cpu").view(count, *extra.shape)
    return ExpectedExtra(extra.kind, values, {device: limit.extras[name] for device, limit in limits.items()})


def _require_length(path: str, values: list[Any], length: int) -> None:
    if len(values) != length:
        _refuse(path, f"have {length} items", len(values))


def _refuse(path: str, rule: str, found: object) -> None:
    raise PydanticCustomError("self_test", f"self_test.{path} must {rule}, got {found}")


def _to_dict(test: SelfTest) -> dict[str, Any]:
    """Return the self-test in the form of `_Stored`."""
    expected: dict[str, Any] = {"boxes": test.boxes.tolist(), "scores": test.scores.tolist()}
    if test.labels is not None:
        expected["labels"] = test.labels.tolist()
    if test.extras:
        expected["extras"] = {
            name: extra.values.reshape(len(extra.values), -1).tolist() for name, extra in test.extras.items()
        }
    return {
        "image": {"shape": list(test.image.shape), "pixels": test.image.flatten().tolist()},
        "score_threshold": test.score_threshold,
        "iou_threshold": test.iou_threshold,
        "expected": expected,
        "loss": {
            "predictions": test.loss_predictions.tolist(),
            "targets": test.loss_targets.tolist(),
            "expected": test.loss,
        },
        "tolerance": {
            device: _tolerance_to_dict(device, limit, test.extras)
            for device, limit in test.tolerances.items()
        },
    }


def _tolerance_to_dict(device: str, limit: Tolerance, extras: Mapping[str, ExpectedExtra]) -> dict[str, Any]:
    limits: dict[str, Any] = {"boxes": limit.boxes, "scores": limit.scores, "loss": limit.loss}
    if extras:
        limits["extras"] = {name: extra.tolerances[device] for name, extra in extras.items()}
    return limits
