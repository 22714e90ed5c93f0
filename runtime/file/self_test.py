"""The self-test of an artifact, a picture and its expected detections, as `lensbox.json` nests them.

`lensbox.runtime.detect.self_test` runs the self-test.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NoReturn

import torch
from pydantic import BeforeValidator, ConfigDict, Field, GetPydanticSchema
from pydantic_core import PydanticCustomError, core_schema
from torch import Tensor

from lensbox.common.fields import STRICT, Fraction

MAX_PIXELS = 1 << 20

_FLOAT32_MAX = torch.finfo(torch.float32).max
Number = Annotated[float, Field(ge=-_FLOAT32_MAX, le=_FLOAT32_MAX)]
NonNegativeNumber = Annotated[float, Field(ge=0, le=_FLOAT32_MAX)]
_Box = tuple[Number, Number, Number, Number]
_Size = Annotated[int, Field(ge=1)]


def _stored(
    form: Any, read: Callable[[Any], Tensor], write: Callable[[Tensor], Any] = Tensor.tolist
) -> GetPydanticSchema:
    """Return the JSON form of a tensor. form: its type. read, write: convert from the form, and to it."""
    return GetPydanticSchema(
        lambda _, handler: core_schema.json_or_python_schema(
            core_schema.no_info_after_validator_function(read, handler.generate_schema(form)),
            core_schema.is_instance_schema(Tensor),
            serialization=core_schema.plain_serializer_function_ser_schema(write),
        )
    )


def _tensor(dtype: torch.dtype) -> Callable[[Any], Tensor]:
    return partial(torch.tensor, dtype=dtype, device="cpu")


@dataclass(frozen=True)
class _Image:
    shape: tuple[Literal[1, 3, 4], _Size, _Size]
    pixels: Annotated[list[Annotated[int, Field(ge=0, le=255)]], Field(max_length=MAX_PIXELS)]


def _read_image(stored: _Image) -> Tensor:
    _require_length("image.pixels", stored.pixels, math.prod(stored.shape))
    return torch.tensor(stored.pixels, dtype=torch.uint8, device="cpu").view(stored.shape)


def _write_image(image: Tensor) -> dict[str, Any]:
    return {"shape": list(image.shape), "pixels": image.flatten().tolist()}


def _write_rows(values: Tensor) -> Any:
    return values.reshape(len(values), -1).tolist()


_SOME = Field(min_length=1)
_Boxes = Annotated[Tensor, _stored(Annotated[list[_Box], _SOME], _tensor(torch.float32))]
_Scores = Annotated[Tensor, _stored(Annotated[list[Fraction], _SOME], _tensor(torch.float32))]
_Labels = Annotated[Tensor, _stored(list[Annotated[int, Field(ge=0, lt=2**31)]], _tensor(torch.int64))]
_Values = Annotated[Tensor, _stored(list[list[Number]], _tensor(torch.float64), _write_rows)]


@dataclass(frozen=True)
class Expected:
    """The expected detections, best first, in pixels of the image.

    boxes: float32 [n, 4]. scores: float32 [n]. labels: int64 [n]; None for a detector without classes.
    extras: further outputs by name, float64 [n, ...].
    """

    boxes: _Boxes
    scores: _Scores
    labels: _Labels | None = None
    extras: Mapping[str, _Values] = field(default_factory=dict)


@dataclass(frozen=True)
class ExpectedLoss:
    """The expected loss of boxes. predictions, targets: float32 [m, 4]."""

    predictions: _Boxes
    targets: _Boxes
    expected: Number


_Unstored = Annotated[float, Field(exclude=True)]
_UNMATCHED = 1 / 20


@dataclass(frozen=True)
class Tolerance:
    """The differences between two runtimes that rounding explains.

    boxes: in pixels. scores, loss: absolute; in an export, loss is a part of the loss. extras: absolute, by
    name; others are not compared. Files hold these four. iou: by which an overlap may miss the IoU threshold.
    relative: part of a coordinate, added to `boxes`. unmatched: share of detections without a partner.
    """

    boxes: NonNegativeNumber
    scores: NonNegativeNumber
    loss: NonNegativeNumber
    extras: Mapping[str, NonNegativeNumber] = field(default_factory=dict)
    iou: _Unstored = 0.01
    relative: _Unstored = 0.0
    unmatched: _Unstored = _UNMATCHED


def _on_device(iou: float) -> Any:
    """Return a validator for a tolerance in a file, which holds four numbers alone."""
    unstored = {"relative": 0.0, "unmatched": _UNMATCHED, "iou": iou}
    return BeforeValidator(lambda value: {**value, **unstored} if isinstance(value, dict) else value)


@dataclass(frozen=True)
class Tolerances:
    """Tolerances by device type; cuda: for all devices but "cpu"."""

    cpu: Annotated[Tolerance, _on_device(0.01)]
    cuda: Annotated[Tolerance, _on_device(0.02)]

    def on(self, device: str) -> Tolerance:
        """Return the tolerance on a type of device."""
        return self.cpu if device == "cpu" else self.cuda


# Float32 on the CPU differs only by the order of sums; TF32 convolutions keep 11 bits of each factor.
TOLERANCES = Tolerances(Tolerance(0.01, 0.001, 1e-5), Tolerance(0.5, 0.02, 1e-5, iou=0.02))


@dataclass(frozen=True)
class SelfTest:
    """Input and expected output. image: uint8 [C, H, W]."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    image: Annotated[Tensor, _stored(_Image, _read_image, _write_image)]
    score_threshold: Fraction
    iou_threshold: Fraction
    expected: Expected
    loss: ExpectedLoss
    tolerance: Tolerances


def fitted(test: SelfTest, classes: Sequence[str], extras: Mapping[str, Any]) -> SelfTest:
    """Return a stored self-test with the outputs that a detector of these classes and extras has.

    Raise PydanticCustomError, with the path of the value, for numbers of items that do not fit.
    """
    expected, values = test.expected, {}
    count, labels = len(expected.scores), expected.labels
    _require_length("expected.boxes", expected.boxes, count)
    _require_length("loss.predictions", test.loss.predictions, len(test.loss.targets))
    if classes:
        _require_length("expected.labels", () if labels is None else labels, count)
        if labels is not None and (largest := int(labels.max())) >= len(classes):
            _refuse("expected.labels", f"hold numbers below {len(classes)}", largest)
    for name, extra in extras.items():
        rows = expected.extras.get(name, torch.zeros(0))
        _require_length(f"expected.extras.{name}", rows, count)
        _require_length(f"expected.extras.{name}[0]", rows[0].flatten(), math.prod(extra.shape))
        values[name] = rows.view(count, *extra.shape)
        for device in ("cpu", "cuda"):
            if name not in test.tolerance.on(device).extras:
                _refuse(f"tolerance.{device}.extras.{name}", "be a number", "nothing")
    return replace(test, expected=replace(expected, labels=labels if classes else None, extras=values))


def _require_length(path: str, values: Any, length: int) -> None:
    if len(values) != length:
        _refuse(path, f"have {length} items", len(values))


def _refuse(path: str, rule: str, found: object) -> NoReturn:
    raise PydanticCustomError("self_test", f"self_test.{path} must {rule}, got {found}")
