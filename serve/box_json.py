"""Box tensors from the JSON body of /v1/loss."""

import math
from typing import Any

import torch
from torch import Tensor

from lensbox.serve.errors import ApiError, shown
from lensbox.serve.json_body import parse_json

_FIELDS = ("predictions", "targets")
_MOST_SIGNS = 64


def loss_tensors(body: bytes, max_boxes: int) -> tuple[Tensor, Tensor]:
    """Predictions and targets of one shape, [N, 4] or [B, N, 4], float64 as JSON's numbers are.

    Raises ApiError: 413 for more than `max_boxes` boxes or images in one of them; 422 for anything but
    {"predictions": …, "targets": …} with rectangular arrays of finite numbers.
    """
    _check_size(body, max_boxes)
    question = _parse(body)
    if not isinstance(question, dict):
        raise _invalid(f"the body must be an object of predictions and targets, got {shown(question)}")
    for key in question:
        if key not in _FIELDS:
            raise _invalid(f"the body's keys must be predictions and targets, got {shown(key)}")
    for name in _FIELDS:
        if name not in question:
            raise _invalid(f"{name} must be given, got the keys {shown(sorted(question))}")
    predictions = _box_tensor("predictions", question["predictions"], max_boxes)
    targets = _box_tensor("targets", question["targets"], max_boxes)
    if predictions.shape != targets.shape:
        raise _invalid(
            "predictions and targets must have the same shape, "
            f"got {list(predictions.shape)} and {list(targets.shape)}"
        )
    return predictions, targets


def _check_size(body: bytes, max_boxes: int) -> None:
    """Refuses, before it is parsed, what has more arrays or values than `max_boxes` boxes and images need.

    The parser stops every other thread of the process while it works: for 12 ms with a megabyte of numbers,
    and for many times that with a megabyte of empty arrays, each an object for the garbage collector.
    """
    # Arrays are counted where they end, so that brackets which are never closed stay a matter of JSON. Each
    # field is an array of images, which are arrays of boxes, which are arrays of 4 numbers.
    for what, sign, most in (
        ("arrays", b"]", 2 * (1 + 2 * max_boxes)),
        ("commas", b",", 2 * 5 * max_boxes + 1),
    ):
        if (count := body.count(sign)) > most:
            raise _too_many(
                f"the body must have at most {max_boxes} boxes or images in each of predictions and targets, "
                f"which take at most {most} {what}, got {count}"
            )
    # A valid body is one object with two keys; a parser that stops the process for objects is not asked.
    for what, sign in (("objects", b"{"), ("quotes", b'"')):
        if (count := body.count(sign)) > _MOST_SIGNS:
            raise _invalid(f"the body must be one object of predictions and targets, got {count} {what}")


def _parse(body: bytes) -> Any:
    try:
        return parse_json(body)
    except ValueError as error:  # not JSON, not UTF-8, or an integer of thousands of digits
        raise _not_json(str(error)) from None


def _box_tensor(name: str, value: Any, max_boxes: int) -> Tensor:
    boxes = _list(name, value)
    if boxes and isinstance(boxes[0], list) and (not boxes[0] or isinstance(boxes[0][0], list)):
        _check_count(name, "images", len(boxes), max_boxes)
        count = sum(len(_list(f"{name}[{index}]", image)) for index, image in enumerate(boxes))
        _check_count(name, "boxes", count, max_boxes)
        slots = len(boxes[0])
        for index, image in enumerate(boxes):
            if len(image) != slots:
                raise _invalid(
                    f"{name}[{index}] must have as many boxes as {name}[0], {slots}, got {len(image)}"
                )
            _check_boxes(f"{name}[{index}]", image)
        shape = [len(boxes), slots, 4]
    else:
        _check_count(name, "boxes", len(boxes), max_boxes)
        _check_boxes(name, boxes)
        shape = [len(boxes), 4]
    return torch.tensor(boxes, dtype=torch.float64).reshape(shape)


def _check_count(name: str, what: str, count: int, most: int) -> None:
    if count > most:
        raise _too_many(f"{name} must have at most {most} {what}, got {count}")


def _check_boxes(name: str, boxes: list[Any]) -> None:
    for index, box in enumerate(boxes):
        if not isinstance(box, list) or len(box) != 4:
            raise _invalid(f"{name}[{index}] must be a box [x1, y1, x2, y2], got {shown(box)}")
        for side, number in zip(("x1", "y1", "x2", "y2"), box, strict=True):
            # By exact type: true and false are int to isinstance.
            if type(number) not in (int, float) or not _is_finite(number):
                raise _invalid(f"{side} of {name}[{index}] must be a finite number, got {shown(number)}")


def _is_finite(number: int | float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer beyond float64
        return False


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _invalid(f"{name} must be an array [N][4] or [B][N][4], got {shown(value)}")
    return value


def _too_many(message: str) -> ApiError:
    return ApiError(413, "too_many_boxes", message)


def _invalid(message: str) -> ApiError:
    return ApiError(422, "invalid_boxes", message)


def _not_json(reason: str) -> ApiError:
    return ApiError(422, "invalid_json", f"the body must be JSON: {reason}")
