"""Read the boxes of POST /v1/loss from JSON."""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, Tag
from torch import Tensor

from lensbox.runtime.box_loss import BoxPairs
from lensbox.serve.requests.errors import ApiError, shown
from lensbox.serve.requests.json_body import check_counts, read_json

_MOST_SIGNS = 64
_MOST_IMAGES_ALONE = 1024  # each image is a call of the model's loss

# fail_fast: report only the first wrong number. Not pydantic's FailFast, which cannot be a member of a union.
_Box = Annotated[list[FiniteFloat], Field(min_length=4, max_length=4, fail_fast=True)]
_BoxesOfImage = Annotated[list[_Box], Field(fail_fast=True)]
_BoxesOfImages = Annotated[list[_BoxesOfImage], Field(fail_fast=True)]
_Boxes = Annotated[_BoxesOfImage, Tag("[N][4]")] | Annotated[_BoxesOfImages, Tag("[B][N][4]")]
_Weight = Annotated[float, Field(ge=0, le=1e9)]
_WeightList = Annotated[list[_Weight], Field(fail_fast=True)]
_WeightsOfImages = Annotated[list[_WeightList], Field(fail_fast=True)]
_Weights = Annotated[_WeightList, Tag("[N]")] | Annotated[_WeightsOfImages, Tag("[B][N]")]


class LossQuestion(BaseModel):
    """The body of /v1/loss."""

    model_config = ConfigDict(extra="forbid")

    predictions: _Boxes = Field(
        union_mode="left_to_right",
        description="[N][4], or a list of images with lists of boxes of any length; xyxy in pixels",
    )
    targets: _Boxes = Field(
        union_mode="left_to_right",
        description="same shape as predictions, or a list of as many images with at most as many boxes each; "
        "target i of an image belongs to prediction i. y2 = 0 marks an empty slot",
    )
    weights: Annotated[_Weights, Field(union_mode="left_to_right")] | None = Field(
        None, description="one weight per target of [N][4], per image, or per target of each image"
    )
    per_image: bool = Field(False, description="true: return the loss of each image, too")
    gradient: bool = Field(False, description="true: return d loss / d predictions, too")


class LossRequest(NamedTuple):
    """Pairs of boxes. per_image, gradient: True to return these beside the loss."""

    pairs: BoxPairs
    per_image: bool
    gradient: bool


class _FlatBoxes(NamedTuple):
    """boxes: boxes of all images, concatenated. sizes: number of boxes of each image; None for [N][4]."""

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
    Target i of an image belongs to prediction i of that image. `weights` has one number per image or target.
    Raises ApiError: 413 for more than `max_boxes` boxes or images; 422 for any other invalid body.
    """
    _check_size(body, max_boxes)
    question = read_json(body, LossQuestion, 422, "invalid_boxes")
    predictions = _flat("predictions", question.predictions, max_boxes)
    targets = _flat("targets", question.targets, max_boxes)
    _check_pairs(predictions, targets)
    pairs = _pairs(predictions, targets, question.weights)
    images = len(pairs.sizes or ())
    if question.per_image and images > _MOST_IMAGES_ALONE:
        raise _too_many(f"per_image must be of at most {_MOST_IMAGES_ALONE} images, got {images}")
    return LossRequest(pairs, question.per_image, question.gradient)


def _check_size(body: bytes, max_boxes: int) -> None:
    """Raise ApiError (413) for more arrays or commas than `max_boxes` boxes or images in each list need."""
    most = {
        "arrays": 2 * (1 + 2 * max_boxes) + (1 + max_boxes),
        "commas": (2 * 5 + 2) * max_boxes + len(LossQuestion.model_fields) - 1,
    }
    subject = f"the body, with at most {max_boxes} boxes or images in each list,"
    check_counts(body, most, 413, "too_many_boxes", subject)
    few = {"objects": _MOST_SIGNS, "quotes": _MOST_SIGNS}
    check_counts(body, few, 422, "invalid_boxes", "the body, one object of predictions and targets,")


def _flat(name: str, boxes: list[Any], max_boxes: int) -> _FlatBoxes:
    """Flatten boxes of [N][4] or of images. Raises ApiError (413) for too many."""
    sizes = None
    if boxes and (not boxes[0] or isinstance(boxes[0][0], list)):
        _check_count(name, "images", len(boxes), max_boxes)
        sizes = tuple(map(len, boxes))
        boxes = [box for image in boxes for box in image]
    _check_count(name, "boxes", len(boxes), max_boxes)
    return _FlatBoxes(boxes, sizes)


def _check_pairs(predictions: _FlatBoxes, targets: _FlatBoxes) -> None:
    """Raise ApiError (422) unless each target has its prediction."""
    ours, theirs = predictions.sizes, targets.sizes
    if ours is None or theirs is None:
        if predictions.shape != targets.shape:
            shapes = f"{predictions.shape} and {targets.shape}"
            raise _invalid(f"predictions and targets must have the same shape, got {shapes}")
        return
    if len(ours) != len(theirs):
        counts = f"{len(ours)} and {len(theirs)}"
        raise _invalid(f"predictions and targets must have the same number of images, got {counts}")
    for index, (have, need) in enumerate(zip(ours, theirs, strict=True)):
        if need > have:
            rule = f"must have at most as many boxes as predictions[{index}], which has {have}"
            raise _invalid(f"targets[{index}] {rule}, got {need}")


def _pairs(predictions: _FlatBoxes, targets: _FlatBoxes, weights: list[Any] | None) -> BoxPairs:
    """Return pairs. Pad targets to the number of predictions, with weights of 0."""
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
    """Return the indices, among all slots, of the first counts[b] of the sizes[b] slots of each image b."""
    lengths, begins = torch.tensor(counts, dtype=torch.int64), torch.tensor([0, *sizes]).cumsum(0)[:-1]
    image = torch.arange(len(counts)).repeat_interleave(lengths)
    within = torch.arange(len(image)) - (lengths.cumsum(0) - lengths)[image]
    return begins[image] + within


def _weights(weights: list[Any], targets: _FlatBoxes) -> list[float]:
    """Return a weight for each target."""
    sizes, is_nested = targets.sizes, bool(weights) and isinstance(weights[0], list)
    if sizes is None:
        if is_nested:
            raise _invalid(f"weights must be [N], as targets has no images, got {shown(weights)}")
        _check_length("weights", weights, "targets", len(targets.boxes))
        return weights
    _check_length("weights", weights, "targets has images", len(sizes))
    if is_nested:
        for index, (image, size) in enumerate(zip(weights, sizes, strict=True)):
            _check_length(f"weights[{index}]", image, f"targets[{index}]", size)
        return [weight for image in weights for weight in image]
    return [weight for weight, size in zip(weights, sizes, strict=True) for _ in range(size)]


def _check_length(name: str, weights: list[Any], owner: str, count: int) -> None:
    if len(weights) != count:
        raise _invalid(f"{name} must have as many items as {owner}, {count}, got {len(weights)}")


def _check_count(name: str, what: str, count: int, most: int) -> None:
    if count > most:
        raise _too_many(f"{name} must have at most {most} {what}, got {count}")


def _too_many(message: str) -> ApiError:
    return ApiError(413, "too_many_boxes", message)


def _invalid(message: str) -> ApiError:
    return ApiError(422, "invalid_boxes", message)
