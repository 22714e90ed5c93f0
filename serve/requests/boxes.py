"""Read the boxes of POST /v1/loss from JSON."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lensbox.runtime.box_loss import BoxPairs
from lensbox.serve.requests.errors import ApiError, shown
from lensbox.serve.requests.json_body import check_counts, parse_json

_BOXES = ("predictions", "targets")
_OPTIONS = ("weights", "per_image", "gradient")
_MOST_SIGNS = 64
_MOST_WEIGHT = 1e9
_MOST_IMAGES_ALONE = 1024  # each is a call of the model's loss


class LossRequest(NamedTuple):
    """Pairs of boxes, and which answers are wanted beside their loss."""

    pairs: BoxPairs
    per_image: bool
    gradient: bool


class _Boxes(NamedTuple):
    """boxes: of all images, end to end. sizes: number of boxes of each image; None for [N][4]."""

    boxes: list[list[float]]
    sizes: tuple[int, ...] | None

    @property
    def shape(self) -> str:
        if self.sizes is None:
            return f"[{len(self.boxes)}, 4]"
        each = self.sizes[0] if len(set(self.sizes)) == 1 else "ragged"
        return f"[{len(self.sizes)}, {each}, 4]"


def read_loss_request(body: bytes, max_boxes: int) -> LossRequest:
    """Return the pairs of boxes in a body; boxes are float64.

    `predictions` and `targets` are both [N][4], or both lists of images with lists of boxes of any length.
    Target i of an image belongs to its prediction i. `weights` has a number for each image or each target.
    Raises ApiError: 413 for more than `max_boxes` boxes or images; 422 for any other fault.
    """
    _check_size(body, max_boxes)
    question = _parse(body)
    if not isinstance(question, dict):
        raise _invalid(f"the body must be an object of predictions and targets, got {shown(question)}")
    for key in question:
        if key not in (*_BOXES, *_OPTIONS):
            known = f"{', '.join(_BOXES + _OPTIONS[:-1])} and {_OPTIONS[-1]}"
            raise _invalid(f"the body's keys must be {known}, got {shown(key)}")
    for name in _BOXES:
        if name not in question:
            raise _invalid(f"{name} must be given, got the keys {shown(sorted(question))}")
    predictions, targets = (_boxes(name, question[name], max_boxes) for name in _BOXES)
    _check_pairs(predictions, targets)
    pairs = _pairs(predictions, targets, question.get("weights"))
    per_image, gradient = (_flag(name, question.get(name, False)) for name in ("per_image", "gradient"))
    if per_image and len(pairs.sizes or ()) > _MOST_IMAGES_ALONE:
        raise _too_many(
            f"per_image must be of at most {_MOST_IMAGES_ALONE} images, got {len(pairs.sizes or ())}"
        )
    return LossRequest(pairs, per_image, gradient)


def _check_size(body: bytes, max_boxes: int) -> None:
    """Raise ApiError (413) for more arrays or commas than `max_boxes` boxes or images in each list need."""
    most = {
        "arrays": 2 * (1 + 2 * max_boxes) + (1 + max_boxes),
        "commas": (2 * 5 + 2) * max_boxes + len(_OPTIONS) + 1,
    }
    subject = f"the body, with at most {max_boxes} boxes or images in each list,"
    check_counts(body, most, 413, "too_many_boxes", subject)
    few = {"objects": _MOST_SIGNS, "quotes": _MOST_SIGNS}
    check_counts(body, few, 422, "invalid_boxes", "the body, one object of predictions and targets,")


def _parse(body: bytes) -> Any:
    try:
        return parse_json(body)
    except ValueError as error:  # not JSON, not UTF-8, or an integer of thousands of digits
        raise ApiError(422, "invalid_json", f"the body must be JSON: {error}") from None


def _boxes(name: str, value: Any, max_boxes: int) -> _Boxes:
    """Return the boxes of [N][4], or of images. Raises ApiError as `read_loss_request` does."""
    boxes = _list(name, value)
    if not (boxes and isinstance(boxes[0], list) and (not boxes[0] or isinstance(boxes[0][0], list))):
        _check_count(name, "boxes", len(boxes), max_boxes)
        _check_boxes(name, boxes)
        return _Boxes(boxes, None)
    _check_count(name, "images", len(boxes), max_boxes)
    count = sum(len(_list(f"{name}[{index}]", image)) for index, image in enumerate(boxes))
    _check_count(name, "boxes", count, max_boxes)
    for index, image in enumerate(boxes):
        _check_boxes(f"{name}[{index}]", image)
    return _Boxes([box for image in boxes for box in image], tuple(map(len, boxes)))


def _check_pairs(predictions: _Boxes, targets: _Boxes) -> None:
    """Raise ApiError (422) unless each target has its prediction."""
    ours, theirs = predictions.sizes, targets.sizes
    if ours is None or theirs is None:
        if predictions.shape != targets.shape:
            raise _invalid(
                "predictions and targets must have the same shape, "
                f"got {predictions.shape} and {targets.shape}"
            )
        return
    if len(ours) != len(theirs):
        raise _invalid(
            f"predictions and targets must be of as many images, got {len(ours)} and {len(theirs)}"
        )
    for index, (have, need) in enumerate(zip(ours, theirs, strict=True)):
        if need > have:
            of_image = f"predictions[{index}]"
            raise _invalid(
                f"targets[{index}] must have at most as many boxes as {of_image}, {have}, got {need}"
            )


def _pairs(predictions: _Boxes, targets: _Boxes, weights: Any) -> BoxPairs:
    """Return pairs. Targets are padded to the number of predictions, with weights of 0."""
    sizes = predictions.sizes or (len(predictions.boxes),)
    places = _places(sizes, targets.sizes or sizes)
    boxes = torch.tensor(predictions.boxes, dtype=torch.float64).reshape(-1, 4)
    padded = torch.zeros_like(boxes)
    padded[places] = torch.tensor(targets.boxes, dtype=torch.float64).reshape(-1, 4)
    if weights is None:
        return BoxPairs(boxes, padded, predictions.sizes)
    of_targets = torch.tensor(_weights(weights, targets), dtype=torch.float64)
    of_slots = torch.zeros(len(boxes), dtype=torch.float64)
    of_slots[places] = of_targets * (padded[places, 3] != 0)
    return BoxPairs(boxes, padded, predictions.sizes, of_slots)


def _places(sizes: Sequence[int], counts: Sequence[int]) -> Tensor:
    """Return the places, among all slots, of the first counts[b] slots of each image b of sizes[b] slots."""
    lengths, begins = torch.tensor(counts, dtype=torch.int64), torch.tensor([0, *sizes]).cumsum(0)[:-1]
    image = torch.arange(len(counts)).repeat_interleave(lengths)
    within = torch.arange(len(image)) - (lengths.cumsum(0) - lengths)[image]
    return begins[image] + within


def _weights(value: Any, targets: _Boxes) -> list[float]:
    """Return a weight for each target."""
    weights = _list("weights", value, "[N], [B] or [B][N]")
    sizes = targets.sizes
    if sizes is None:
        _check_weights("weights", weights, len(targets.boxes), "targets")
        return weights
    if weights and isinstance(weights[0], list):
        if len(weights) != len(sizes):
            raise _invalid(f"weights must be of {len(sizes)} images, as targets, got {len(weights)}")
        for index, (image, size) in enumerate(zip(weights, sizes, strict=True)):
            _check_weights(
                f"weights[{index}]", _list(f"weights[{index}]", image, "[N]"), size, f"targets[{index}]"
            )
        return [weight for image in weights for weight in image]
    _check_weights("weights", weights, len(sizes), "targets has images")
    return [weight for weight, size in zip(weights, sizes, strict=True) for _ in range(size)]


def _check_weights(name: str, weights: list[Any], count: int, owner: str) -> None:
    if len(weights) != count:
        raise _invalid(f"{name} must have as many numbers as {owner}, {count}, got {len(weights)}")
    for index, weight in enumerate(weights):
        if type(weight) not in (int, float) or not 0 <= weight <= _MOST_WEIGHT:
            raise _invalid(f"{name}[{index}] must be a number from 0 to 1e9, got {shown(weight)}")


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _invalid(f"{name} must be true or false, got {shown(value)}")
    return value


def _check_count(name: str, what: str, count: int, most: int) -> None:
    if count > most:
        raise _too_many(f"{name} must have at most {most} {what}, got {count}")


def _check_boxes(name: str, boxes: list[Any]) -> None:
    for index, box in enumerate(boxes):
        _check_box(f"{name}[{index}]", box)


def _check_box(name: str, box: Any) -> None:
    if not isinstance(box, list) or len(box) != 4:
        raise _invalid(f"{name} must be a box [x1, y1, x2, y2], got {shown(box)}")
    for side, number in zip(("x1", "y1", "x2", "y2"), box, strict=True):
        # By exact type: true and false are int to isinstance.
        if type(number) not in (int, float) or not _is_finite(number):
            raise _invalid(f"{side} of {name} must be a finite number, got {shown(number)}")


def _is_finite(number: int | float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer beyond float64
        return False


def _list(name: str, value: Any, shape: str = "[N][4] or [B][N][4]") -> list[Any]:
    if not isinstance(value, list):
        raise _invalid(f"{name} must be an array {shape}, got {shown(value)}")
    return value


def _too_many(message: str) -> ApiError:
    return ApiError(413, "too_many_boxes", message)


def _invalid(message: str) -> ApiError:
    return ApiError(422, "invalid_boxes", message)
