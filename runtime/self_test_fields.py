"""The self-test within `lensbox.json`."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lensbox.runtime.detection import Extra
from lensbox.runtime.json_field import Field
from lensbox.runtime.self_test import ExpectedExtra, SelfTest, Tolerance

MAX_PIXELS = 1 << 20
DEVICES = ("cpu", "cuda")


def self_test_to_dict(test: SelfTest) -> dict[str, Any]:
    """The value of `self_test`, which `read_self_test` reads."""
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


def read_self_test(test: Field, classes: int, extras: Mapping[str, Extra]) -> SelfTest:
    """Reads the value of `self_test` of a detector with this number of classes and these extras.

    Raises FieldError.
    """
    expected, loss = test["expected"], test["loss"]
    scores = expected["scores"].items("scores", least=1)
    boxes = _boxes(expected["boxes"], len(scores))
    targets = loss["targets"].items("boxes", least=1)
    return SelfTest(
        image=_image(test["image"]),
        score_threshold=test["score_threshold"].fraction(),
        iou_threshold=test["iou_threshold"].fraction(),
        boxes=boxes,
        scores=torch.tensor([score.fraction() for score in scores], dtype=torch.float32),
        loss_predictions=_boxes(loss["predictions"], len(targets)),
        loss_targets=_boxes(loss["targets"], len(targets)),
        loss=loss["expected"].number(),
        tolerances={device: _tolerance(test["tolerance"][device]) for device in DEVICES},
        labels=_labels(expected["labels"], len(scores), classes) if classes else None,
        extras={name: _extra(name, extra, test, len(scores)) for name, extra in extras.items()},
    )


def _tolerance_to_dict(device: str, limit: Tolerance, extras: Mapping[str, ExpectedExtra]) -> dict[str, Any]:
    limits: dict[str, Any] = {"boxes": limit.boxes, "scores": limit.scores, "loss": limit.loss}
    if extras:
        limits["extras"] = {name: extra.tolerances[device] for name, extra in extras.items()}
    return limits


def _image(image: Field) -> Tensor:
    """uint8 [C, H, W]."""
    channels, height, width = (
        size.integer(1, MAX_PIXELS, "a positive integer") for size in image["shape"].items("sizes", 3, 3)
    )
    if channels not in (1, 3, 4):
        image["shape"].fail("[C, H, W] with C = 1, 3 or 4")
    size = channels * height * width
    if size > MAX_PIXELS:
        image["shape"].fail(f"that of an image of at most {MAX_PIXELS} values")
    pixels = image["pixels"].integers(f"values, as many as the shape has ({size})", size, 0, 255)
    return torch.tensor(pixels, dtype=torch.uint8).view(channels, height, width)


def _boxes(field: Field, count: int) -> Tensor:
    """float32 [count, 4]."""
    rows = field.items("boxes, one for each score or target", count, count)
    values = [[number.number() for number in row.items("coordinates", 4, 4)] for row in rows]
    return torch.tensor(values, dtype=torch.float32)


def _labels(field: Field, count: int, classes: int) -> Tensor:
    """int64 [count]."""
    return torch.tensor(field.integers(f"labels, one for each score ({count})", count, 0, classes - 1))


def _extra(name: str, extra: Extra, test: Field, count: int) -> ExpectedExtra:
    size = math.prod(extra.shape)
    rows = test["expected"]["extras"][name].items("rows, one for each score", count, count)
    values = [[number.number() for number in row.items("numbers", size, size)] for row in rows]
    limits = {device: test["tolerance"][device]["extras"][name].positive() for device in DEVICES}
    return ExpectedExtra(
        extra.kind, torch.tensor(values, dtype=torch.float64).view(count, *extra.shape), limits
    )


def _tolerance(field: Field) -> Tolerance:
    return Tolerance(**{name: field[name].positive() for name in ("boxes", "scores", "loss")})
