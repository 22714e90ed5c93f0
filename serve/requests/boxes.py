"""Read the boxes of POST /v1/loss from JSON."""

from typing import Annotated, Any, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, Tag
from torch import Tensor

from lensbox.serve.errors import ApiError
from lensbox.serve.requests.json_body import check_counts, read_json

_MOST_SIGNS = 64

# fail_fast: report only the first wrong number. Not pydantic's FailFast, which cannot be a member of a union.
_Box = Annotated[list[FiniteFloat], Field(min_length=4, max_length=4, fail_fast=True)]
_BoxesOfImage = Annotated[list[_Box], Field(fail_fast=True)]
_BoxesOfImages = Annotated[list[_BoxesOfImage], Field(fail_fast=True)]
_Boxes = Annotated[_BoxesOfImage, Tag("[N][4]")] | Annotated[_BoxesOfImages, Tag("[B][N][4]")]


class LossQuestion(BaseModel):
    """The body of /v1/loss."""

    model_config = ConfigDict(extra="forbid")

    predictions: _Boxes = Field(
        union_mode="left_to_right",
        description="a list of boxes, or a list of such lists per image, of any length; xyxy in pixels",
    )
    targets: _Boxes = Field(
        union_mode="left_to_right",
        description="nested as predictions, at most as many boxes per image; target i of an image belongs to "
        "prediction i. y2 = 0 marks a prediction without a target",
    )
    gradient: bool = Field(False, description="true: return d loss / d predictions, too")


class LossRequest(NamedTuple):
    """Predicted boxes, each with its target.

    predictions, targets: float64 [N, 4], or [B, N, 4] with zeros after the boxes of each image. sizes: number
    of predictions of each image; None for [N, 4]. gradient: True to return the gradient beside the loss.
    """

    predictions: Tensor
    targets: Tensor
    sizes: tuple[int, ...] | None
    gradient: bool


def read_loss_request(body: bytes, max_boxes: int) -> LossRequest:
    """Return the boxes in a body.

    Raises ApiError: 413 for more than `max_boxes` boxes after padding each image to the largest; 422 for any
    other invalid body.
    """
    _check_size(body, max_boxes)
    question = read_json(body, LossQuestion, 422, "invalid_boxes")
    is_nested = _is_nested(question.predictions)
    if is_nested != _is_nested(question.targets):
        forms = "images and boxes" if is_nested else "boxes and images"
        raise _invalid(f"predictions and targets must be lists of boxes, or lists of images, got {forms}")
    predictions, targets = (
        boxes if is_nested else [boxes] for boxes in (question.predictions, question.targets)
    )
    _check_images(predictions, targets)
    sizes = tuple(map(len, predictions))
    slots = len(sizes) * max(1, *sizes)
    if slots > max_boxes:
        rule = f"must have at most {max_boxes} boxes after padding each image to the largest"
        raise ApiError(413, "too_many_boxes", f"predictions {rule}, got {slots}")
    ours, theirs = (_padded(images, max(sizes)) for images in (predictions, targets))
    if is_nested:
        return LossRequest(ours, theirs, sizes, question.gradient)
    return LossRequest(ours[0], theirs[0], None, question.gradient)


def _check_size(body: bytes, max_boxes: int) -> None:
    """Raise ApiError (413) for more arrays or commas than `max_boxes` boxes in each list need."""
    most = {
        "arrays": 2 * (1 + 2 * max_boxes),
        "commas": 2 * 5 * max_boxes + len(LossQuestion.model_fields) - 1,
    }
    subject = f"the body, with at most {max_boxes} boxes in each list,"
    check_counts(body, most, 413, "too_many_boxes", subject)
    few = {"objects": _MOST_SIGNS, "quotes": _MOST_SIGNS}
    check_counts(body, few, 422, "invalid_boxes", "the body, one object of predictions and targets,")


def _is_nested(boxes: list[Any]) -> bool:
    """Return whether boxes are lists per image."""
    return bool(boxes) and (not boxes[0] or isinstance(boxes[0][0], list))


def _check_images(predictions: list[Any], targets: list[Any]) -> None:
    """Raise ApiError (422) unless each target has its prediction."""
    if len(predictions) != len(targets):
        counts = f"{len(predictions)} and {len(targets)}"
        raise _invalid(f"predictions and targets must have the same number of images, got {counts}")
    for index, (have, need) in enumerate(zip(predictions, targets, strict=True)):
        if len(need) > len(have):
            rule = f"must have at most as many boxes as its predictions, which are {len(have)}"
            raise _invalid(f"targets of image {index} {rule}, got {len(need)}")


def _padded(images: list[Any], length: int) -> Tensor:
    """Return boxes [B, length, 4], with zeros after the boxes of each image."""
    rows = [[*image, *[[0.0] * 4] * (length - len(image))] for image in images]
    return torch.tensor(rows, dtype=torch.float64).reshape(len(images), length, 4)


def _invalid(message: str) -> ApiError:
    return ApiError(422, "invalid_boxes", message)
